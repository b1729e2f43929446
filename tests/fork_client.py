"""Stands for a process that a server forks: ``fork_client.py SOCKET ARGUMENTS...``; see ``fork_server.py``."""

import json
import os
import resource
import signal
import socket
import struct
import sys

HEADER = struct.Struct("!I")


def main() -> None:
    server = socket.socket(socket.AF_UNIX)
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
    text = json.dumps(request).encode()
    socket.send_fds(server, [HEADER.pack(len(text))], descriptors)
    server.sendall(text)
    for each in descriptors:
        os.close(each)  # else who reads from the fork would wait for this process too
    answer = server.recv(HEADER.size)
    if not answer:
        os._exit(1)  # the server has ended
    code = struct.unpack("!i", answer)[0]
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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
