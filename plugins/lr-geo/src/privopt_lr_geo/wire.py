"""CLR-Geo over HTTP: clients upload packages, the server solves the joint program once, and clients fetch answers.

Start the server with ``python -m privopt_lr_geo.wire serve PROBLEM --users N``, and a client with
``python -m privopt_lr_geo.wire ask PROBLEM --user ID --server URL --out FOLDER``. Run the server behind a TLS proxy.

Each client has a random name, and stores its seed before uploading, so that it uploads the same bytes again after a
crash. Requests are not logged. The server can still infer a user's position from an upload (see README).
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from privopt.declare import load_problem
from privopt.errors import (
    CertificationError,
    InputError,
    PrivoptError,
    StoppedError,
    UsageError,
    conceal,
    number_of,
)
from privopt.execution.clock import DaemonCall, check, clock, limit
from privopt.files.regular import private_folder
from privopt.interfaces import SolveContext
from privopt_lr_geo import server
from privopt_lr_geo.central import clients_of, terms_of
from privopt_lr_geo.client import Client
from privopt_lr_geo.lr_sets import lr_sets
from privopt_lr_geo.messages import Answer, Package, from_bytes, to_bytes
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.user_randomness import stored_seed
from privopt_metric_dp.matrix.release import MatrixRelease

__all__ = ["UploadRound", "ask", "serve"]

NAME_DIGITS: Final = 32
"""The number of hexadecimal digits in a client's name, which is half of a SHA-256 hash derived from its seed."""
POLL_SECONDS: Final = 0.2
"""The number of seconds that a client waits between requests for its answer."""


IDLE_SECONDS: Final = 30.0
"""The number of seconds after which an idle connection is closed."""
REQUEST_SECONDS: Final = 120.0
"""The time limit in seconds for a request and its response together, however slowly the data arrives."""
MAX_CONNECTIONS: Final = 64
"""The maximum number of connections served at a time. Further connections are closed at once."""
MAX_BODIES: Final = 4
"""The number of packages of the largest allowed size that can be received at a time."""
FULL: Final = "the round has all its packages"
ENDED: Final = "the round ended without an answer"
LARGEST_BYTES: Final = 64_000_000
"""The maximum size of an answer in bytes, and the default maximum size of a package, before and after unpacking."""


@frozen(kw_only=True, eq=False)
class UploadRound:
    """The state of one round of uploads: the packages received and the answers to them. It is thread-safe.

    Attributes:
        records, outputs: The numbers of records and outputs on the public map, which packages must match.
        users: The number of packages in the round.
        largest: The maximum size of a package in bytes, both as received and after unpacking.
        seconds: The time limit for receiving all packages, and also for sending all answers.
        _packages, _answers: The serialised packages and answers, keyed by the client's random name.
        _fetched: The names of the clients that have fetched their answers.
        _ended: An event that is set once no further packages are accepted, whether or not there are answers.
        _changed: A condition that guards the attributes above. It is notified of new packages and fetched answers.
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
        """Handle the upload of a package, which may repeat an earlier upload of the same package.

        Args:
            name: The client's random name.
            raw: The package as it was received.

        Returns:
            The status and body of the response. The status is ACCEPTED on success, BAD_REQUEST if the package is
            malformed, CONFLICT if the client already sent a different package, and FORBIDDEN if the round accepts no
            more packages.
        """
        try:
            # Parsing a large package takes long, so it is done before the lock is taken, or others would have to wait.
            package = from_bytes(Package, raw, largest=self.largest)
        except (InputError, ValueError, MemoryError) as error:
            return (
                HTTPStatus.BAD_REQUEST,
                f"the body must be a package of this protocol, got other bytes: {error}".encode(),
            )
        # A package has rows for some of the map's records and columns for all of its outputs.
        rows, outputs = package.reach.shape
        if not 0 < rows <= self.records or outputs != self.outputs:
            return HTTPStatus.BAD_REQUEST, b"package must be of the public map, got another size"
        with self._changed:
            if name in self._packages:
                # Different bytes under the same name are rejected. The name is derived from the client's seed, which
                # nobody else knows, and from which the client always derives the same bytes.
                is_same = self._packages[name] == raw
                return (HTTPStatus.ACCEPTED if is_same else HTTPStatus.CONFLICT), b""
            if self._ended.is_set() or len(self._packages) == self.users:
                return HTTPStatus.FORBIDDEN, FULL.encode()
            self._packages[name] = raw
            self._changed.notify_all()
        return HTTPStatus.ACCEPTED, b""

    def get(self, name: str) -> tuple[HTTPStatus, bytes]:
        """Handle a client's request for its answer.

        Args:
            name: The client's random name.

        Returns:
            The status and body of the response. The status is OK if the body is the answer, GONE if the round ended
            without one, and otherwise ACCEPTED if the client has sent a package or NOT_FOUND if it has not.
        """
        with self._changed:
            if name in self._answers:
                self._fetched.add(name)
                self._changed.notify_all()
                return HTTPStatus.OK, self._answers[name]
            if self._ended.is_set():
                return HTTPStatus.GONE, ENDED.encode()
            return (HTTPStatus.ACCEPTED if name in self._packages else HTTPStatus.NOT_FOUND), b""

    def run(self, problem: LRGeoInstance, context: SolveContext) -> bool:
        """Wait for all packages, solve the program, and wait until all answers have been fetched.

        Packages are sorted by the clients' random names, so the order in which they arrive does not matter.

        Args:
            problem: The problem. Only its public parameters are used.
            context: The method and limits for the solver.

        Returns:
            True if the program was solved, or False if not all packages arrived in time.
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
            # The process ends after this call, so clients are given time to fetch their answers.
            self._changed.wait_for(lambda: len(self._fetched) == self.users, self.seconds)
        return True


@contextmanager
def _cut_after(seconds: float, connection: socket.socket) -> Iterator[threading.Event]:
    """Shut down a connection if a ``with`` block takes longer than ``seconds``.

    Pending reads and writes on the connection then end at once, and the event yielded by the context manager is set. A
    socket timeout would not suffice, because it restarts with each byte.

    Args:
        seconds: The time limit for the block.
        connection: The socket to shut down.
    """

    was_cut = threading.Event()

    def cut() -> None:
        """Set the event and shut down the connection."""
        was_cut.set()
        try:
            # Even for a TLS socket, the base class's method does not wait for the peer to agree.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        except OSError:  # the connection is already closed
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
    """Limits on the server's resources, which apply to all clients together.

    Attributes:
        connections: The maximum number of connections served at the same time.
        request_seconds: The time limit in seconds for a request and its response.
        body_bytes: The maximum total size in bytes of the packages being received at the same time.
    """

    connections: int = MAX_CONNECTIONS
    request_seconds: float = REQUEST_SECONDS
    body_bytes: int = MAX_BODIES * LARGEST_BYTES


class _Server(ThreadingHTTPServer):
    """An HTTP server with one thread per connection, and with limits on connections, time and received bytes.

    Attributes:
        limits: The limits, which apply to all clients together.
        _connections: A semaphore that counts how many more connections can be accepted.
        _reserved_bytes: The total size that clients have declared for the packages being received, guarded by
            ``_lock``.
    """

    def __init__(self, address: tuple[str, int], running: UploadRound, limits: ServerLimits) -> None:
        """Bind to an address. No requests are served until ``serve_forever`` is called.

        Args:
            address: The host and port.
            running: The round of uploads to serve.
            limits: The limits, which apply to all clients together.
        """
        self.limits = limits
        self._connections = threading.BoundedSemaphore(limits.connections)
        self._lock = threading.Lock()
        self._reserved_bytes = 0
        super().__init__(address, _make_handler(running, self))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or close the connection if too many are open.

        Args:
            request: The connection's socket.
            client_address: The client's address, which is passed on to the base class.
        """
        if self._connections.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self._connections.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection within the time limit, and then make room for another connection.

        This method runs in the thread that :meth:`process_request` starts, and takes the same arguments.
        """
        try:
            with _cut_after(self.limits.request_seconds, request):
                super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the type and traceback of an unexpected exception, but not its message or the client's address.

        The message or the address could identify a user. Nothing is printed for OSError, such as a broken connection.
        """
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            frames = "".join(traceback.format_tb(error.__traceback__))
            print(f"a request failed: {type(error).__name__}\n{frames}", end="", file=sys.stderr)

    @contextmanager
    def reserve(self, size: int) -> Iterator[bool]:
        """Reserve ``size`` bytes for the duration of a ``with`` block that receives a package.

        The context manager yields True if the bytes are reserved, or False if that would exceed the limit.
        """
        with self._lock:
            is_granted = self._reserved_bytes + size <= self.limits.body_bytes
            self._reserved_bytes += size if is_granted else 0
        try:
            yield is_granted
        finally:
            with self._lock:
                self._reserved_bytes -= size if is_granted else 0


def _make_handler(running: UploadRound, http: _Server) -> type[BaseHTTPRequestHandler]:
    """Create a class that handles the HTTP requests PUT /packages/NAME and GET /answers/NAME.

    Args:
        running: The round of uploads.
        http: The server, which limits the number of bytes received at a time.
    """

    class Handler(BaseHTTPRequestHandler):
        """A handler for one connection. Its public methods have the names expected by ``http.server``."""

        timeout = IDLE_SECONDS

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, because names and addresses could identify users."""

        def do_PUT(self) -> None:
            """Handle a PUT request: check the declared length and the client's name, and receive the package."""
            length = self.headers.get("Content-Length", "")
            name = self._client_name("/packages/")
            if not (length.isascii() and length.isdigit()):
                self._respond(HTTPStatus.LENGTH_REQUIRED)
            # No allowed size has more than 12 digits. Converting a very long number would take time.
            elif len(length) > 12 or int(length) > running.largest:
                self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif name is None:  # the body is not read unless the path contains a valid name
                self._respond(HTTPStatus.BAD_REQUEST)
            else:
                self._receive_package(name, int(length))

        def _receive_package(self, name: str, size: int) -> None:
            """Receive a package and respond, or reject it if too many bytes are being received already.

            Args:
                name: The client's random name.
                size: The size of the body in bytes.
            """
            with http.reserve(size) as is_granted:
                if not is_granted:
                    self._respond(HTTPStatus.SERVICE_UNAVAILABLE)
                elif len(raw := self.rfile.read(size)) != size:
                    self._respond(HTTPStatus.BAD_REQUEST)
                else:
                    self._respond(*running.put(name, raw))

        def do_GET(self) -> None:
            """Handle a GET request: respond with the client's answer, or with a status if there is no answer."""
            name = self._client_name("/answers/")
            self._respond(*(running.get(name) if name else (HTTPStatus.NOT_FOUND,)))

        def _client_name(self, prefix: str) -> str | None:
            """Return the client's name, or None if the request's path is not ``prefix`` followed by a valid name."""
            match = re.fullmatch(f"{prefix}([0-9a-f]{{{NAME_DIGITS}}})", self.path)
            return match and match[1]

        def _respond(self, status: HTTPStatus, body: bytes = b"") -> None:
            """Send a response with the given status and body."""
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
    """Serve one round of uploads over HTTP, and return whether the program was solved.

    The server's URL is printed once the server accepts connections.

    Args:
        problem: The problem. Its map, epsilon and radii are used, but its users are not.
        context: The method, "benders" or "full", and the solver's limits.
        running: The round to serve.
        address: The host and port. Port 0 selects a free port.
        limits: The limits, which apply to all clients together. By default, four packages of the maximum size can be
            received at once.
    """
    limits = limits or ServerLimits(body_bytes=MAX_BODIES * running.largest)
    with _Server(address, running, limits) as http:
        DaemonCall(http.serve_forever)
        print(f"http://{address[0]}:{http.server_port}", flush=True)
        try:
            return running.run(problem, context)
        finally:
            time.sleep(2 * POLL_SECONDS)  # clients that still poll can find out that the round has ended
            http.shutdown()


def ask(problem: LRGeoInstance, url: str, folder: Path, seconds: float = 600.0) -> MatrixRelease:
    """Upload a user's package to a server, wait for the answer, and return the user's matrix after certifying it.

    Args:
        problem: The problem, which must have exactly one user.
        url: The server's address, which starts with http:// or https://.
        folder: The user's private folder, to which the seed and the matrix (``mechanism.npz``) are written.
        seconds: The time limit for the answer.

    Raises:
        UsageError: The URL is not of the form http://HOST:PORT or https://HOST:PORT.
        InputError: The server's answer is malformed, or the user's costs cannot be bounded.
        StoppedError: No answer arrived in time, the round ended without one, or the server rejected the package.
        CertificationError: No repair of the answer satisfies the guarantee.
    """
    _open_connection(url).close()  # raises UsageError if the URL is wrong, before anything is written
    private_folder(folder)
    seed = stored_seed(folder, None, resume=True)
    (client,) = _find_client(problem, seed)
    name, raw = sha256(f"{seed} name".encode()).hexdigest()[:NAME_DIGITS], to_bytes(client.package)
    answer = from_bytes(Answer, _fetch_answer(url, name, raw, seconds))
    try:
        repaired = client.accept(answer, problem.data.epsilon)
    except CertificationError:  # the original message would name records near the user
        raise CertificationError(f"{url}: the answer could not be repaired to satisfy the guarantee") from None
    release = client.around.matrix(repaired.weights, problem.data)
    release.write(folder)
    return release


def _find_client(problem: LRGeoInstance, seed: int) -> list[Client]:
    """Return a list with a single client: the problem's only user, together with the user's package.

    Args:
        problem: The problem, which must have exactly one user.
        seed: The seed for the user's random draws.

    Raises:
        InputError: The user's costs cannot be bounded. The message does not name records near the user.
    """
    try:
        return clients_of(problem, seed, sets=lr_sets(problem))
    except InputError as error:
        raise InputError(conceal(error.faults)) from None


def _fetch_answer(url: str, name: str, raw: bytes, seconds: float) -> bytes:
    """Upload a package unless the server already has it, and wait for the serialised answer.

    Args:
        url: The server's address.
        name: The client's random name.
        raw: The serialised package.
        seconds: The time limit for the answer.

    Raises:
        StoppedError: No answer arrived in time, the round ended without an answer, or the server rejected the package.
    """
    with limit(seconds):
        while True:
            check()
            # Ask before uploading, because a client that was killed after its upload need not repeat it.
            status, body = _send_request(url, "GET", f"/answers/{name}")
            if status == HTTPStatus.NOT_FOUND:
                status, body = _send_request(url, "PUT", f"/packages/{name}", raw)
            if status == HTTPStatus.OK:
                return body
            if status in (HTTPStatus.GONE, HTTPStatus.FORBIDDEN):
                raise StoppedError(f"{url}: {_describe_end(body)}")
            # The server is asked again if it has no answer yet (ACCEPTED), is busy or could not be reached (None).
            if status not in (None, HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE):
                raise StoppedError(f"{url}: the package was refused ({status})")
            time.sleep(POLL_SECONDS)
    # When time runs out, limit() leaves its block without an error.
    raise StoppedError(f"{url}: no answer within {seconds:g} s")


def _describe_end(body: bytes) -> str:
    """Return the server's reason for not sending an answer.

    An unrecognised response is not quoted, because the server could have put secrets from the package into it.

    Args:
        body: The body of the server's response.
    """
    return next((text for text in (FULL, ENDED) if body == text.encode()), "the server gave no answer")


def _open_connection(url: str, seconds: float = IDLE_SECONDS) -> HTTPConnection:
    """Prepare a connection to a server without opening it. Over https, the server's certificate will be verified.

    Args:
        url: The server's address, http://HOST:PORT or https://HOST:PORT.
        seconds: The socket timeout.

    Raises:
        UsageError: The URL is malformed, has a scheme other than http or https, or contains login credentials.
    """
    kinds: dict[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}
    try:
        parts = urlsplit(url)
        host, port, has_login = parts.hostname, parts.port, "@" in parts.netloc
    except ValueError:  # the port or the address is malformed
        host, has_login = None, "@" in url
    if not host or parts.scheme not in kinds or has_login:
        actual = "one with a login, which is not sent" if has_login else url
        raise UsageError(f"server must be http://HOST:PORT or https://HOST:PORT, got {actual}")
    return kinds[parts.scheme](host, port, timeout=seconds)


def _send_request(
    url: str, verb: str, path: str, body: bytes | None = None, largest: int = LARGEST_BYTES
) -> tuple[HTTPStatus | None, bytes]:
    """Send an HTTP request, and return the status and body of the response.

    The status is None if the server cannot be reached, is too slow, or sends a malformed response.

    Args:
        url: The server's address.
        verb: "GET" or "PUT".
        path: The path on the server.
        body: The body of a PUT request.
        largest: The maximum size of the response's body in bytes.

    Raises:
        StoppedError: The response's body has more than ``largest`` bytes.
    """
    remaining_seconds = max(clock().left, 0.001)
    connection = _open_connection(url, min(IDLE_SECONDS, remaining_seconds))
    try:
        connection.connect()
        with _cut_after(min(remaining_seconds, threading.TIMEOUT_MAX), connection.sock) as was_cut:
            connection.request(verb, path, body)
            answer = connection.getresponse()
            # One byte more than allowed is enough to find out that a body is too long.
            status, content = HTTPStatus(answer.status), answer.read(largest + 1)
            # `length` counts the bytes still to come. If any are missing, the connection broke before the body ended.
            if was_cut.is_set() or (answer.length and len(content) <= largest):
                return None, b""
    except (OSError, HTTPException, ValueError):  # HTTPStatus raises ValueError for an unknown status
        return None, b""
    finally:
        connection.close()
    if len(content) > largest:
        raise StoppedError(f"{url}: the answer has more than {largest:,} bytes")
    return status, content


def main(arguments: Sequence[str]) -> int:
    """Run the server or a client from the command line.

    Args:
        arguments: The arguments after the program's name.

    Returns:
        The exit code: 0 on success, 2 for invalid input, and 5 for any other failure.
    """
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
    options, further_arguments = parser.parse_known_args(arguments)
    if further_arguments:  # not quoted, because one could be part of the user's record
        parser.error(f"expected options alone after PROBLEM, got {number_of(len(further_arguments), 'argument')} more")
    try:
        declared = load_problem(LRGeoProblem, options.problem)
        if options.side == "ask":
            problem = LRGeoInstance.of_one_user(declared, options.user, str(options.problem))
            ask(problem, options.server, options.out, options.seconds)
            return 0
        problem = LRGeoInstance.of(declared, str(options.problem))
        records, outputs = len(problem.data.records), len(problem.data.outputs)
        limits = {"users": options.users, "largest": options.largest, "seconds": options.seconds}
        running = UploadRound(records=records, outputs=outputs, **limits)
        context = SolveContext(method=options.method, solver="highs")
        return 0 if serve(problem, context, running, (options.host, options.port)) else 5
    except PrivoptError as error:
        print(error, file=sys.stderr)
        # Exit codes of the command line: 2 for wrong input, 5 for work that was not completed.
        return 2 if isinstance(error, (InputError, UsageError)) else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
