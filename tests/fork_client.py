"""Stands for a process that a server forks: ``fork_client.py SOCKET ARGUMENTS...``; see ``fork_server.py``.

Imports only modules in C: json, socket and struct take longer than all the rest of it.
"""

import _socket
import marshal
import os
import sys

HEADER = 4
"""Bytes of the length of a request, and of an exit status, with the highest first."""


def main() -> None:
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(sys.argv[1])
    # No pathlib: this file is to start at once.
    descriptors = [int(each) for each in os.listdir("/dev/fd")]  # noqa: PTH208
    descriptors = [each for each in descriptors if each != server.fileno() and is_open(each)]
    request = {
        "arguments": sys.argv[2:],
        "directory": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
        "descriptors": descriptors,
    }
    text = marshal.dumps(request)
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    server.sendmsg([len(text).to_bytes(HEADER, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    server.sendall(text)
    for each in descriptors:
        os.close(each)  # else who reads from the fork would wait for this process too
    answer = server.recv(HEADER)
    if not answer:
        os._exit(1)  # the server has ended
    code = int.from_bytes(answer, "big", signed=True)
    if code < 0:
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:  # which has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False  # of the list itself
    return True


main()
