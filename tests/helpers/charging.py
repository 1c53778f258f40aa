"""A town, a table of its visits, and what a ledger says of them."""

from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.ledger.ledger import Ledger
from privopt_tables.secret_columns import Secret

TOWN = """
[records]
points = "points.csv"
[distance]
kind = "euclidean"
[privacy]
epsilon = 0.5
{}
[utility]
kind = "distance"
"""
POINTS = [(f"p{n}", float(n % 4), float(n // 4)) for n in range(12)]
BY_ID, BY_PLACE = Secret.of(id="place"), Secret.of(x="x", y="y")
CENSUS = """
[hierarchy]
counts = "counts.csv"
sizes = 4
[privacy]
epsilon = 0.4
"""


def write_town(folder, extra_settings=""):
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in POINTS))
    (folder / "p.toml").write_text(TOWN.format(extra_settings))
    return folder / "p.toml"


def table(path, rows, header="who,place"):
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return path


def read_charges(path):
    with Ledger(path, make=False) as ledger:
        ledger.check()
        return [(charge.subject, charge.cost) for charge in ledger.charges()]


def run_command(*arguments):
    completed = CliRunner().invoke(cli, list(map(str, arguments)))
    return completed.exit_code, completed.stdout, completed.stderr
