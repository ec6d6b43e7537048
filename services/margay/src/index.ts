export { startMargay, type MargayProcess, type ProcessOptions } from './margay-process';
export { parseServices, SERVICE_NAMES, type ServiceName } from './service-names';
export { STARTERS, type LoadService } from './starters';
