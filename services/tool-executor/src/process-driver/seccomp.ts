/** Numbers of system calls and the architecture's name in audit records. */
interface Architecture {
  audit: number;
  socket: number;
  /** The second set of numbers that x86-64 kernels take. */
  hasX32: boolean;
  denied: readonly number[];
}

/** Numbers that all newer architectures share: io_uring, mounts by descriptor, quota by descriptor. */
const COMMON = [425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443];

/**
 * What no build or test needs, and namespaces do not cover: kernel key rings (keyctl, add_key, request_key), bpf,
 * perf_event_open, userfaultfd, mounts, setns, kernel modules, kexec, open_by_handle_at, reboot, swap, acct, quotactl,
 * syslog, port access.
 */
const ARCHITECTURES: Partial<Record<string, Architecture>> = {
  x64: {
    audit: 0xc000003e,
    socket: 41,
    hasX32: true,
    denied: [
      ...[250, 248, 249, 321, 298, 323, 165, 166, 155, 308, 175, 313, 176, 246, 320],
      ...[304, 169, 167, 168, 163, 179, 103, 172, 173, ...COMMON],
    ],
  },
  arm64: {
    audit: 0xc00000b7,
    socket: 198,
    hasX32: false,
    denied: [
      ...[219, 217, 218, 280, 241, 282, 40, 39, 41, 268, 105, 273, 106, 104, 294],
      ...[265, 142, 224, 225, 89, 60, 116, ...COMMON],
    ],
  },
};

/** Unix, IPv4, IPv6 and netlink belong to the network namespace; others, such as vsock, reach past it. */
const FAMILIES = [1, 2, 10, 16];

const LOAD = 0x20;
const EQUALS = 0x15;
const AT_LEAST = 0x35;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const REFUSE = 0x00050000;
const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;
/** Offsets in `struct seccomp_data`. */
const NUMBER = 0;
const ARCHITECTURE = 4;
const FIRST_ARGUMENT = 16;
const X32_BIT = 0x40000000;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** A filter program for bubblewrap; undefined for architectures whose numbers are not known here. */
export function seccompFilter(architecture: string = process.arch): Buffer | undefined {
  const known = ARCHITECTURES[architecture];
  return known && assemble(programOf(known));
}

function programOf({ audit, socket, hasX32, denied }: Architecture): Instruction[] {
  const refuse = (errno: number): Instruction => [RETURN, 0, 0, REFUSE | errno];
  return [
    [LOAD, 0, 0, ARCHITECTURE],
    [EQUALS, 1, 0, audit],
    refuse(ENOSYS),
    [LOAD, 0, 0, NUMBER],
    ...(hasX32 ? ([[AT_LEAST, 0, 1, X32_BIT], refuse(ENOSYS)] as const) : []),
    ...denied.flatMap((number): Instruction[] => [
      [EQUALS, 0, 1, number],
      // Programs that try io_uring fall back where it does not exist.
      refuse(number >= 425 && number <= 427 ? ENOSYS : EPERM),
    ]),
    [EQUALS, 1, 0, socket],
    [RETURN, 0, 0, ALLOW],
    [LOAD, 0, 0, FIRST_ARGUMENT],
    ...FAMILIES.flatMap((family): Instruction[] => [
      [EQUALS, 0, 1, family],
      [RETURN, 0, 0, ALLOW],
    ]),
    refuse(EAFNOSUPPORT),
  ];
}

function assemble(program: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(program.length * 8);
  for (const [index, [code, ifTrue, ifFalse, value]] of program.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(ifTrue, index * 8 + 2);
    bytes.writeUInt8(ifFalse, index * 8 + 3);
    bytes.writeUInt32LE(value, index * 8 + 4);
  }
  return bytes;
}
