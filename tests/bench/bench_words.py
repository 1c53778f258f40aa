"""What words cost: a release over 5,000 of 300 dimensions, with all outputs and with 600 of them; sentences.

Run as ``python tests/bench/bench_words.py [--words 5000] [--sentences 1000] [--kind float32]``: word2vec's files hold
vectors as float32. Seconds by the clock and by the processors, of whole commands; the folder's size on disk.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from bench_city import PRIVOPT, processor_seconds, run_command

DIMENSIONS = 300
WORDS_OF_A_SENTENCE = 20
PROBLEM = """
[records]
vectors = "words.npy"
ids = "words.txt"
{outputs}
[distance]
kind = "euclidean"
[privacy]
epsilon = 10.0
[utility]
kind = "distance"
"""


def run(name: str, words: list[str | Path]) -> None:
    """Run a command, and print what it took."""
    start_cpu_seconds = processor_seconds()
    code, seconds, peak, _ = run_command([*PRIVOPT, *words, "--quiet"])
    used = processor_seconds() - start_cpu_seconds
    about = f"load {os.getloadavg()[0]:.0f}" if code == 0 else f"exit {code}"
    print(f"| {name} | {seconds:.1f} | {used:.1f} | {peak:.2f} | {about} |", flush=True)


def size(folder: Path) -> float:
    """MB on disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Write words and sentences, solve, and protect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=5_000)
    parser.add_argument("--sentences", type=int, default=1_000)
    parser.add_argument("--kind", choices=("float16", "float32", "float64"), default="float32")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| command | seconds | processor seconds | GB | |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        words = [f"w{chr(97 + n % 26)}{n}" for n in range(arguments.words)]
        vectors = rng.normal(size=(arguments.words, DIMENSIONS)) / DIMENSIONS**0.5
        np.save(folder / "words.npy", vectors.astype(arguments.kind))
        (folder / "words.txt").write_text("\n".join(words) + "\n")
        few = np.arange(0, arguments.words, max(1, arguments.words // 600))[:600]
        np.save(folder / "few.npy", vectors[few].astype(arguments.kind))
        (folder / "few.txt").write_text("\n".join(words[n] for n in few) + "\n")
        texts = [" ".join(rng.choice(words, WORDS_OF_A_SENTENCE)) for _ in range(arguments.sentences)]
        pl.DataFrame({"who": range(arguments.sentences), "said": texts}).write_csv(folder / "said.csv")
        for name, outputs in (("all outputs", ""), ("600 outputs", '[outputs]\nvectors = "few.npy"\nids = "few.txt"')):
            (folder / "problem.toml").write_text(PROBLEM.format(outputs=outputs))
            output_folder = folder / name.replace(" ", "-")
            run(f"solve exponential, {name}", ["solve", "exponential", folder / "problem.toml", "--out", output_folder])
            print(
                f"| {name}: {size(output_folder):.0f} MB, "
                f"of them {size(output_folder / 'problem'):.0f} the vectors and the words | | | | |"
            )
            command = [
                "apply",
                output_folder,
                folder / "said.csv",
                "--text",
                "said",
                "--out",
                folder / f"{output_folder.name}.csv",
            ]
            run(f"{arguments.sentences:,} sentences of {WORDS_OF_A_SENTENCE} words, {name}", list(command))


if __name__ == "__main__":
    main()
