"""Processes for tests that begin with torch and ipykernel imported, forked from one that has done it.

To import them takes a second and a half of CPU time, and the tests start a hundred processes that need them. Such a
process runs what `python -m MODULE` would run, with its own environment, folder and streams. What tests importing
itself starts Python as it is.

    python -S -E tests/warm.py ADDRESS MODULE ARGUMENTS

stands for that process: it hands its streams to the server at ADDRESS, passes signals on, and ends as the process ends.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

SIZE = 1 << 17  # bytes of the longest message: an environment and a command
STREAMS = (0, 1, 2)


def command(module: str, *arguments: str) -> list[str]:
    """The command that stands for `python -m MODULE ARGUMENTS` in a warm process."""
    return [sys.executable, "-S", "-E", os.path.abspath(__file__), _address(), module, *arguments]


_started: list[str] = []


def _address() -> str:
    """The server's socket; it is started when the first process is, and ends with this one."""
    if not _started:
        import atexit
        import shutil
        import subprocess
        import tempfile

        folder = tempfile.mkdtemp(prefix="cutetut-warm-")
        address = os.path.join(folder, "socket")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        server = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), address], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.wait)
        atexit.register(server.stdin.close)  # the first to be called: the server ends
        _started.append(address)
    return _started[0]


# -- the process that stands for another one -----------------------------------------------------------------------


def stand_in(address: str, arguments: list[str]) -> None:
    """Have the server run this, and end as it ends."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)

    def pass_on(number: int, frame: FrameType | None) -> None:
        connection.send(str(number).encode())

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    wanted = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STREAMS))
    connection.sendmsg([json.dumps(wanted).encode()], [rights])
    status = int(connection.recv(SIZE) or b"1")
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


# -- the server ----------------------------------------------------------------------------------------------------


def serve(address: str) -> list[str]:
    """Fork a process for each that asks; returns only in such a process, with what it is to run."""
    import contextlib
    import gc
    import selectors

    import ipykernel.kernelapp  # noqa: F401
    import torch  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts the tests interrupts their processes
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    ended, wake = socket.socketpair()  # a byte for each signal
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)  # one that is ignored wakes nobody
    watched = selectors.DefaultSelector()
    for each in (0, listener, ended):
        watched.register(each, selectors.EVENT_READ)
    running: dict[int, socket.socket] = {}  # by a process's id, who stands for it
    gc.collect()
    gc.freeze()  # no process forked from this one looks there for garbage
    print("ready", flush=True)
    while True:
        for key, _ in watched.select():
            if key.fd == 0:  # whoever started this has ended
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            elif key.fileobj is listener:
                connection = listener.accept()[0]
                message, descriptors = socket.recv_fds(connection, SIZE, len(STREAMS))[:2]
                pid = os.fork()
                if pid == 0:
                    return become(message, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                running[pid] = connection
                watched.register(connection, selectors.EVENT_READ, pid)
            elif key.fileobj is ended:
                ended.recv(SIZE)
                for pid, connection in [*running.items()]:
                    done, status = os.waitpid(pid, os.WNOHANG)
                    if done:
                        del running[pid]
                        if connection in watched.get_map():
                            watched.unregister(connection)
                            with contextlib.suppress(OSError):  # who stood for it has ended as well
                                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                        connection.close()
            elif key.data in running:  # a signal for a process, or who stood for it has ended
                number = key.fileobj.recv(SIZE)  # type: ignore[union-attr]
                os.kill(key.data, int(number) if number else signal.SIGKILL)
                if not number:
                    watched.unregister(key.fileobj)


def become(message: bytes, descriptors: list[int]) -> list[str]:
    """Take over what a process that was asked for is to have; returns what it is to run."""
    wanted = json.loads(message)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for stream, descriptor in zip(STREAMS, descriptors, strict=True):
        os.dup2(descriptor, stream)
    os.closerange(3, 1 << 12)
    arguments: list[str] = wanted["arguments"]
    sys.path[:1] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return arguments


def run(arguments: list[str]) -> None:
    """What Python does with -m and these arguments."""
    import runpy

    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        stand_in(sys.argv[1], sys.argv[2:])
    else:
        run(serve(sys.argv[1]))
