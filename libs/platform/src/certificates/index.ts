export { certify, newKeyPair, type CertificateRequest, type KeyPair } from './certificate';
