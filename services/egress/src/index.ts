export { startEgress } from './start-egress';
export { EgressSettings } from './policy/egress-policy';
export { newAuthority, type AuthorityFiles } from './intercept/authority';
