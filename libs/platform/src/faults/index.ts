export { parseFaultPlan, type FaultAction, type PlannedFault } from './fault-plan';
export { FAULT_POINT_NAMES, type FaultPointName } from './fault-points';
export { armFaultPoints, faultPoint, type FaultReport } from './fault-point';
