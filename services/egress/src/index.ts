export { startEgress } from './start-egress';
export { EgressPolicy, EgressSettings } from './policy/egress-policy';
