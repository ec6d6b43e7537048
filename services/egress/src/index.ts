export { startEgress } from './start-egress';
export { EgressSettings } from './policy/egress-policy';
