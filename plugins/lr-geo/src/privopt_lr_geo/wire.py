"""LR-Geo's messages over HTTP: a round of uploads, the users' program solved once, and each user's answer.

``python -m privopt_lr_geo.wire serve PROBLEM --users N`` and ``... ask PROBLEM --user ID --server URL --out FOLDER``.
A client keeps its seed before it uploads, so that one that was killed uploads the same bytes again. It goes by a random
name. Nothing is logged. What the server learns is in the README: where the user of each upload is. Put it behind a
proxy that speaks TLS.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from privopt.declare import load_problem
from privopt.errors import InputError, PrivoptError, StoppedError, UsageError
from privopt.execution.clock import DaemonCall, check, clock, limit
from privopt.files.regular import private_folder
from privopt.interfaces import SolveContext
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of, terms_of
from privopt_lr_geo.lr_sets import lr_sets
from privopt_lr_geo.messages import Answer, Package, from_bytes, to_bytes
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.user_randomness import stored_seed
from privopt_metric_dp.matrix.release import MatrixRelease

__all__ = ["UploadRound", "ask", "serve"]

NAME_DIGITS: Final = 32
"""Hexadecimal digits of a client's name: half of a SHA-256 of its seed."""
POLL_SECONDS: Final = 0.2
"""Seconds between a client's questions."""


IDLE_SECONDS: Final = 30.0
"""Seconds that a connection may be silent."""
REQUEST_SECONDS: Final = 120.0
"""Seconds for one whole request and its answer, however they are split up."""
MAX_CONNECTIONS: Final = 64
"""Connections that are served at a time; further ones are closed at once."""
MAX_BODIES: Final = 4
"""Largest packages that are received at a time, by the lengths that their requests state."""
LARGEST_BYTES: Final = 64_000_000
"""Bytes of one package, as it comes and unpacked, unless ``--largest`` says otherwise; and of one answer."""


@frozen(kw_only=True, eq=False)
class UploadRound:
    """The packages and answers of a round. One lock serialises all requests.

    Attributes:
        records, outputs: Sizes of the public map. A package of another size is refused.
        users: Number of packages of the round.
        largest: Most bytes of one package, as received and unpacked.
        seconds: Time limit for all packages to arrive, and again for all answers to be fetched.
    """

    records: int
    outputs: int
    users: int
    largest: int = LARGEST_BYTES
    seconds: float = 600.0
    _packages: dict[str, bytes] = field(factory=dict, init=False)
    _answers: dict[str, bytes] = field(factory=dict, init=False)
    _fetched: set[str] = field(factory=set, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    def put(self, name: str, raw: bytes) -> tuple[HTTPStatus, bytes]:
        """Accept a package. The same package again is accepted too, so that a client may repeat its upload."""
        try:
            package = from_bytes(Package, raw, largest=self.largest)
        except (InputError, ValueError, MemoryError) as error:
            return HTTPStatus.BAD_REQUEST, f"package must be one, got other bytes: {error}".encode()
        rows, outputs = package.reach.shape
        if not 0 < rows <= self.records or outputs != self.outputs:
            return HTTPStatus.BAD_REQUEST, b"package must be of the public map, got another size"
        with self._changed:
            if name in self._packages:
                is_same = self._packages[name] == raw
                return (HTTPStatus.ACCEPTED if is_same else HTTPStatus.CONFLICT), b""
            if self._ended.is_set() or len(self._packages) == self.users:
                return HTTPStatus.FORBIDDEN, b"the round has all its packages"
            self._packages[name] = raw
            self._changed.notify_all()
        return HTTPStatus.ACCEPTED, b""

    def get(self, name: str) -> tuple[HTTPStatus, bytes]:
        """Return the answer to a client, or the status of the round."""
        with self._changed:
            if name in self._answers:
                self._fetched.add(name)
                self._changed.notify_all()
                return HTTPStatus.OK, self._answers[name]
            if self._ended.is_set():
                return HTTPStatus.GONE, b"the round ended without an answer"
            return (HTTPStatus.ACCEPTED if name in self._packages else HTTPStatus.NOT_FOUND), b""

    def run(self, problem: LRGeoInstance, context: SolveContext) -> bool:
        """Wait for all packages, solve, and wait until all answers are fetched.

        Packages are ordered by their names, which are random, so that their times of arrival do not matter.

        Returns:
            Whether there were answers.
        """
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: len(self._packages) == self.users, self.seconds):
                    return False
            names = sorted(self._packages)
            packages = [from_bytes(Package, self._packages[name], largest=self.largest) for name in names]
            answers = server.solve(packages, terms_of(problem), context).answers
            written = dict(zip(names, map(to_bytes, answers), strict=True))
            with self._changed:
                self._answers.update(written)
        finally:
            self._ended.set()
        with self._changed:
            self._changed.wait_for(lambda: len(self._fetched) == self.users, self.seconds)
        return True


@contextmanager
def _cut_after(seconds: float, connection: socket.socket) -> Iterator[threading.Event]:
    """Shut a connection down if the block takes longer: reading and writing end at once, and the event is set.

    A timeout of a socket does not do: it begins anew with each byte.
    """

    was_cut = threading.Event()

    def cut() -> None:
        was_cut.set()
        try:
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TLS too: the peer need not agree
        except OSError:  # it is closed already
            return

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield was_cut
    finally:
        timer.cancel()


@frozen(kw_only=True)
class ServerLimits:
    """What all clients together may take of a server.

    Attributes:
        connections: served at a time.
        request_seconds: for a whole request and its answer.
        body_bytes: of packages that are being received, in all.
    """

    connections: int = MAX_CONNECTIONS
    request_seconds: float = REQUEST_SECONDS
    body_bytes: int = MAX_BODIES * LARGEST_BYTES


class _Server(ThreadingHTTPServer):
    """A server with a thread for each connection, up to a limit of connections and of bytes being received."""

    def __init__(self, address: tuple[str, int], running: UploadRound, limits: ServerLimits) -> None:
        self.limits = limits
        self._connections = threading.BoundedSemaphore(limits.connections)
        self._lock = threading.Lock()
        self._reserved_bytes = 0
        super().__init__(address, _make_handler(running, self))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or close it if there are too many."""
        if self._connections.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self._connections.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection within the time of one request."""
        try:
            with _cut_after(self.limits.request_seconds, request):
                super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a connection that broke; anything else is a fault of the program."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @contextmanager
    def reserve(self, size: int) -> Iterator[bool]:
        """Reserve bytes for a body while it is received; yields whether there are so many."""
        with self._lock:
            is_granted = self._reserved_bytes + size <= self.limits.body_bytes
            self._reserved_bytes += size if is_granted else 0
        try:
            yield is_granted
        finally:
            with self._lock:
                self._reserved_bytes -= size if is_granted else 0


def _make_handler(running: UploadRound, http: _Server) -> type[BaseHTTPRequestHandler]:
    """Return the class that handles the requests of a round."""

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: names and addresses would lead back to users."""

        def do_PUT(self) -> None:
            length = self.headers.get("Content-Length", "")
            name = self._client_name("/packages/")
            if not (length.isascii() and length.isdigit()):
                self._respond(HTTPStatus.LENGTH_REQUIRED)
            elif len(length) > 12 or int(length) > running.largest:
                self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif name is None:  # nothing of a body is read before its name is known
                self._respond(HTTPStatus.BAD_REQUEST)
            else:
                self._receive_package(name, int(length))

        def _receive_package(self, name: str, size: int) -> None:
            """Receive a package of a stated size, if there is room for it."""
            with http.reserve(size) as is_granted:
                if not is_granted:
                    self._respond(HTTPStatus.SERVICE_UNAVAILABLE)
                elif len(raw := self.rfile.read(size)) != size:
                    self._respond(HTTPStatus.BAD_REQUEST)
                else:
                    self._respond(*running.put(name, raw))

        def do_GET(self) -> None:
            name = self._client_name("/answers/")
            self._respond(*(running.get(name) if name else (HTTPStatus.NOT_FOUND,)))

        def _client_name(self, prefix: str) -> str | None:
            """Return the client's name of a path; None of any other path."""
            match = re.fullmatch(f"{prefix}([0-9a-f]{{{NAME_DIGITS}}})", self.path)
            return match and match[1]

        def _respond(self, status: HTTPStatus, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def serve(
    problem: LRGeoInstance,
    context: SolveContext,
    running: UploadRound,
    address: tuple[str, int],
    limits: ServerLimits | None = None,
) -> bool:
    """Serve one round; returns whether it had answers.

    Args:
        problem: whose map, epsilon and radii count; its users do not.
        context: method "benders" or "full".
        running: the round.
        address: host and port; port 0 takes a free one, which is printed.
        limits: on all clients together; bytes for four packages of the largest size if left out.
    """
    limits = limits or ServerLimits(body_bytes=MAX_BODIES * running.largest)
    with _Server(address, running, limits) as http:
        DaemonCall(http.serve_forever)
        print(f"http://{address[0]}:{http.server_port}", flush=True)
        try:
            return running.run(problem, context)
        finally:
            time.sleep(2 * POLL_SECONDS)  # those who ask learn that it ended
            http.shutdown()


def ask(problem: LRGeoInstance, url: str, folder: Path, seconds: float = 600.0) -> MatrixRelease:
    """Send the package of a problem's one user, wait for the answer, and certify it.

    Args:
        problem: of one user.
        url: of the server, http:// or https://.
        folder: private to the user: its seed, and then its matrix as ``mechanism.npz``, are kept there.
        seconds: to wait.

    Raises:
        UsageError: the URL is of another form.
        InputError: its answer is none.
        StoppedError: no answer in time, the round ended without one, or the server refused the package.
        CertificationError: the answer could not be made to keep the promise.
    """
    _open_connection(url).close()  # a URL that will not do ends here, before anything is written
    private_folder(folder)
    seed = stored_seed(folder, None, resume=True)
    (client,) = clients_of(problem, seed, sets=lr_sets(problem))
    name, raw = sha256(f"{seed} name".encode()).hexdigest()[:NAME_DIGITS], to_bytes(client.package)
    answer = from_bytes(Answer, _fetch_answer(url, name, raw, seconds))
    release = client.around.matrix(client.accept(answer, problem.data.epsilon).weights, problem.data)
    release.write(folder)
    return release


def _fetch_answer(url: str, name: str, raw: bytes, seconds: float) -> bytes:
    """Upload a package if the server does not have it, and wait for the answer."""
    with limit(seconds):
        while True:
            check()
            status, body = _send_request(url, "GET", f"/answers/{name}")
            if status == HTTPStatus.NOT_FOUND:
                status, body = _send_request(url, "PUT", f"/packages/{name}", raw)
            if status == HTTPStatus.OK:
                return body
            if status in (HTTPStatus.GONE, HTTPStatus.FORBIDDEN):
                raise StoppedError(f"{url}: {body.decode(errors='replace')}")
            if status not in (None, HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE):
                raise StoppedError(f"{url}: the package was refused ({status}): {body.decode(errors='replace')}")
            time.sleep(POLL_SECONDS)
    raise StoppedError(f"{url}: no answer within {seconds:g} s")


def _open_connection(url: str, seconds: float = IDLE_SECONDS) -> HTTPConnection:
    """Return a connection, not open yet; one by TLS verifies the server's certificate."""
    kinds: dict[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or no address
        host = None
    if not host or parts.scheme not in kinds:
        raise UsageError(f"server must be http://HOST:PORT or https://HOST:PORT, got {url}")
    return kinds[parts.scheme](host, port, timeout=seconds)


def _send_request(
    url: str, verb: str, path: str, body: bytes | None = None, largest: int = LARGEST_BYTES
) -> tuple[HTTPStatus | None, bytes]:
    """Return status and body; no status if the server cannot be reached, or does not end within the time limit.

    Raises:
        StoppedError: the answer has more than ``largest`` bytes.
    """
    remaining_seconds = max(clock().left, 0.001)
    connection = _open_connection(url, min(IDLE_SECONDS, remaining_seconds))
    try:
        connection.connect()
        with _cut_after(min(remaining_seconds, threading.TIMEOUT_MAX), connection.sock) as was_cut:
            connection.request(verb, path, body)
            answer = connection.getresponse()
            status, content = HTTPStatus(answer.status), answer.read(largest + 1)
            if was_cut.is_set() or (answer.length and len(content) <= largest):  # the end is missing
                return None, b""
    except (OSError, HTTPException, ValueError):  # ValueError: a status that HTTP does not have
        return None, b""
    finally:
        connection.close()
    if len(content) > largest:
        raise StoppedError(f"{url}: the answer has more than {largest:,} bytes")
    return status, content


def main(arguments: Sequence[str]) -> int:
    """Run one side; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m privopt_lr_geo.wire")
    sides = parser.add_subparsers(dest="side", required=True)
    serve_parser, ask_parser = sides.add_parser("serve"), sides.add_parser("ask")
    for subparser in (serve_parser, ask_parser):
        subparser.add_argument("problem", type=Path, help="the public problem file")
        subparser.add_argument("--seconds", type=float, default=600.0, help="to wait (default: 600)")
    serve_parser.add_argument("--users", type=int, required=True, help="packages of the round")
    serve_parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve_parser.add_argument("--port", type=int, default=0, help="default: a free one, which is printed")
    serve_parser.add_argument("--method", choices=["benders", "full"], default="benders", help="default: benders")
    serve_parser.add_argument(
        "--largest", type=int, default=LARGEST_BYTES, help="bytes of a package (default: %(default)s)"
    )
    ask_parser.add_argument("--user", required=True, help="record where the user is; it stays here")
    ask_parser.add_argument("--server", required=True, metavar="URL", help="http://HOST:PORT or https://HOST:PORT")
    ask_parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="private: seed and matrix")
    options = parser.parse_args(arguments)
    try:
        declared = load_problem(LRGeoProblem, options.problem)
        if options.side == "ask":
            declared = evolve(declared, lr_geo=evolve(declared.lr_geo, users=(options.user,)))
            ask(LRGeoInstance.of(declared, str(options.problem)), options.server, options.out, options.seconds)
            return 0
        problem = LRGeoInstance.of(declared, str(options.problem))
        records, outputs = len(problem.data.records), len(problem.data.outputs)
        limits = {"users": options.users, "largest": options.largest, "seconds": options.seconds}
        running = UploadRound(records=records, outputs=outputs, **limits)
        context = SolveContext(method=options.method, solver="highs")
        return 0 if serve(problem, context, running, (options.host, options.port)) else 5
    except PrivoptError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, (InputError, UsageError)) else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
