"""A page on this machine alone, on which the owner chooses photos to keep and sees at once what must go.

The photos are read and scored once; each change of what stays solves again. The server listens on 127.0.0.1 under an
address that no one can guess, answers no other host name (so that no page of the web reaches it through the browser),
and stores nothing but the problem file that is asked for.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import tomllib
from collections.abc import Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import numpy as np
import tomli_w
from attrs import evolve, field, frozen

from privopt.declare import load_problem
from privopt.errors import InfeasibleError, PrivoptError
from privopt.execution.clock import limit
from privopt.interfaces import SolveContext
from privopt.run.publish import new_file
from privopt_photo_censor.mechanism import PhotoCensor
from privopt_photo_censor.problem import PhotoInstance, PhotoProblem
from privopt_photo_censor.rank import protected_k, rank
from privopt_photo_censor.release import Deletions

__all__ = ["Chooser", "serve"]

LONGEST: Final = 1_000_000
"""Bytes of a form."""
POLICY: Final = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
)
STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;margin:2rem;max-width:70rem}
ul{display:flex;flex-wrap:wrap;gap:1rem;padding:0;list-style:none}
li{width:13rem;border:3px solid #2a7;border-radius:.4rem;padding:.5rem}li.gone{border-color:#c33}
img{max-width:100%;display:block}li.gone img{opacity:.35}
button{font:inherit;padding:.3rem 1rem}pre{white-space:pre-wrap}"""


@frozen(kw_only=True, eq=False)
class Chooser:
    """An album, scored once, solved for every choice of what stays.

    Attributes:
        file: the problem file.
        instance: its photos.
        lock: held while it solves.
    """

    file: Path
    instance: PhotoInstance
    lock: threading.Lock = field(factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, file: Path) -> Chooser:
        """Read a problem file and score its photos.

        Raises:
            InputError: every fault of the file and its photos.
        """
        declared = load_problem(PhotoProblem, file)
        return cls(file=file, instance=PhotoInstance.of(declared, file.name))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the photos that the problem file keeps."""
        album, names = self.instance.data.album, self.instance.data.names
        return tuple(name for name, stays in zip(names, album.keep.tolist(), strict=True) if stays)

    def solve(self, keep: Sequence[str], seconds: float | None = None) -> Deletions:
        """Return the photos to delete where these stay, by method ``optimal``.

        Args:
            keep: names of photos; others than the album's are omitted.
            seconds: after which the best found is taken.

        Raises:
            InfeasibleError: nothing protects then.
        """
        data = self.instance.data
        mask = np.isin(np.array(data.names, dtype=object), list(keep))
        instance = evolve(self.instance, data=evolve(data, album=evolve(data.album, keep=mask)))
        context = SolveContext(method="optimal")
        with self.lock, limit(seconds):
            return PhotoCensor().solve(instance, context).release

    def save(self, keep: Sequence[str]) -> Path:
        """Write the problem with these photos kept next to the file, as ``NAME.keep.toml``, over an earlier one."""
        table = tomllib.loads(self.file.read_text("utf-8"))
        table["photos"]["keep"] = [name for name in self.instance.data.names if name in set(keep)]
        target = self.file.with_suffix(".keep.toml")
        with new_file(target, force=True) as work:
            work.write_text(tomli_w.dumps(table), "utf-8")
        return target

    def page(self, keep: Sequence[str], saved: Path | None = None) -> str:
        """Return the page for these photos kept."""
        album, names, pictures = self.instance.data.album, self.instance.data.names, self.instance.data.thumbnails
        stays = set(keep)
        try:
            release = self.solve(keep, seconds=60.0)
            left = release.kept
            everything = np.ones(album.photos, dtype=np.bool_)
            lead = (
                f"{int(left.sum())} of {album.photos} photos may stay, {int((~left).sum())} must go: the true place "
                f"was guess {rank(album, everything)}, it becomes guess {protected_k(album, left) + 1}."
            )
        except InfeasibleError as error:
            left, lead = np.ones(album.photos, dtype=np.bool_), f"With these kept nothing protects: {error}"
        items = []
        for row, name in enumerate(names):
            source = base64.b64encode(pictures[row]).decode() if pictures else ""
            picture = f'<img alt="" src="data:image/jpeg;base64,{source}">' if source else ""
            items.append(
                f'<li class="{"" if left[row] else "gone"}"><label>{picture}<input type="checkbox" name="keep" '
                f'value="{escape(name)}"{" checked" if name in stays else ""}> {escape(name)}: '
                f"{'stays' if left[row] else 'goes'}</label></li>"
            )
        note = f"<p>Written: {escape(str(saved))}</p>" if saved else ""
        return (
            f'<!doctype html><meta charset="utf-8"><title>Which photos stay</title><style>{STYLE}</style>'
            f"<h1>Which photos stay</h1><p>{escape(lead)}</p>{note}<form method=post><ul>{''.join(items)}</ul>"
            '<p><button name="do" value="solve">Solve again with these kept</button> '
            '<button name="do" value="save">Write them into a problem file</button></p></form>'
            f"<pre>keep = {escape(json.dumps([n for n in names if n in stays], ensure_ascii=False))}</pre>"
        )


def serve(chooser: Chooser, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """Return a server of the page, ready to run, and its address.

    Args:
        chooser: the album.
        port: of 127.0.0.1; 0: any that is free.
    """
    token = secrets.token_urlsafe(24)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, code: int, text: str) -> None:
            body = text.encode("utf-8", "backslashreplace")
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def _welcome(self) -> bool:
            here = f"127.0.0.1:{server.server_port}"
            known = secrets.compare_digest(self.path.encode(), f"/{token}/".encode())
            if not known or self.headers.get("Host") != here:
                self._answer(404, "not here")
                return False
            return True

        def _page(self, keep: Sequence[str], *, save: bool = False) -> None:
            try:
                self._answer(200, chooser.page(keep, chooser.save(keep) if save else None))
            except PrivoptError as error:
                self._answer(500, f"<p>{escape(str(error))}</p>")

        def do_GET(self) -> None:
            if self._welcome():
                self._page(chooser.kept)

        def do_POST(self) -> None:
            if not self._welcome():
                return
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > LONGEST:
                self._answer(400, "a form of another length")
                return
            form = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"), max_num_fields=100_000)
            self._page(form.get("keep", []), save=form.get("do") == ["save"])

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: names of photos are no one's business."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server, f"http://127.0.0.1:{server.server_port}/{token}/"
