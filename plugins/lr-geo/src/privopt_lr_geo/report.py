"""The report's body and figures: each user's row to explore, its LR set and range, what the server saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats
from privopt.interfaces import Result
from privopt.interfaces.report_parts import Layer
from privopt.report import (
    Section,
    drawing,
    figure_section,
    pair_section,
    table_section,
    themed,
)
from privopt.report.charts import beside
from privopt.report.theme import BAD, INK, LINE, MANY, MARK, PALE, RIM, axes_of
from privopt_lr_geo.lr_sets import PathDistances
from privopt_lr_geo.problem import CLOSE, LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.report.explorer import Explored, explorer, fits
from privopt_metric_dp.report.figures import convergence, layout
from privopt_metric_dp.report.pages import space_features, trajectory_of
from privopt_metric_dp.space.places import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["figures", "map_layer", "range_figure", "row_figure", "sections", "upload_figure"]

SHOWN: Final = 200
"""Users in tables; and those whose LR sets the map marks."""


def lr_sets(problem: LRGeoInstance, users: NDArray[np.int64]) -> Bools:
    """(M, N) which records are locally relevant to which users (Definition 4.1)."""
    limit = problem.declared.lr_geo.radius * (1.0 + CLOSE)
    return np.asarray(PathDistances(problem.data).rows(users, limit) <= limit)


def _middle(problem: LRGeoInstance) -> int:
    """Number of the user that figures are drawn of."""
    return len(problem.users) // 2


@themed
def row_figure(release: LRGeoRelease, problem: LRGeoInstance, user: int = 0) -> Figure:
    """Where one user's report falls, ``user`` by its row: probability of each output, over the map."""
    where = layout(problem.data.outputs)[0]
    figure, axes = axes_of(5.6, 4.3)
    row = np.sqrt(release.probabilities[user])
    x, y = where.places.T
    drawn = axes.scatter(x, y, c=row, s=40, cmap="viridis", rasterized=len(x) > MANY, **RIM)
    figure.colorbar(drawn, ax=axes, label=f"square root of the probability from {release.records[user]}")
    axes.set(xlabel=where.axes[0], ylabel=where.axes[1], aspect="equal")
    return figure


@themed
def range_figure(release: LRGeoRelease, problem: LRGeoInstance, user: int = 0) -> Figure:
    """One user's range: its LR set, the outputs it weighs freely, and those beyond its obfuscation radius."""
    data, options = problem.data, problem.declared.lr_geo
    placed = layout(data.records) if data.outputs is data.records else layout(data.records, data.outputs)
    record = int(problem.users[user])
    away = data.metric.to_outputs(np.array([record]))[0]
    near = away <= options.exponential_beyond
    far = away > options.obfuscation_radius
    figure, axes = axes_of(7.6, 4.8)
    x, y = placed[-1].places.T
    for mask, colour, name in (
        (near, MARK, f"weighed freely: within {options.exponential_beyond:g}"),
        (~near & ~far, PALE, "by the exponential form"),
        (far, LINE, f"all alike: beyond {options.obfuscation_radius:g}"),
    ):
        axes.scatter(x[mask], y[mask], s=60, color=colour, label=name, rasterized=len(x) > MANY, **RIM)
    own = placed[0].places
    inside = lr_sets(problem, problem.users[[user]])[0]
    for mask, size, colour, width, name in (
        (inside, 95, INK, 1.0, "LR set"),
        (np.arange(len(own)) == record, 190, BAD, 2.2, f"user {release.records[user]}"),
    ):
        x, y = own[mask].T
        axes.scatter(x, y, s=size, facecolors="none", edgecolors=colour, linewidths=width, label=name)
    axes.set(xlabel=placed[0].axes[0], ylabel=placed[0].axes[1], aspect="equal")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@themed
def upload_figure(release: LRGeoRelease, problem: LRGeoInstance, user: int = 0) -> Figure:
    """What the server sees of one user's surroundings: distances without names, rows in random order."""
    records = np.flatnonzero(lr_sets(problem, problem.users[[user]])[0])
    order = np.random.default_rng(user).permutation(len(records))
    shuffled = records[order]
    figure, axes = axes_of(5.6, 4.4)
    drawn = axes.imshow(problem.data.metric.between(shuffled[:, None], shuffled[None, :]), cmap="viridis")
    figure.colorbar(drawn, ax=axes, label=f"distance ({problem.data.unit})")
    axes.set(xlabel="a place, unnamed", ylabel="a place, unnamed", xticks=[], yticks=[])
    return figure


def _user_losses(problem: LRGeoInstance, z: Floats) -> Floats:
    return np.asarray(np.einsum("ik,ik->i", z, problem.data.cost[problem.users]))


def _exponential(problem: LRGeoInstance) -> Floats | None:
    """(M, K) rows of the exponential mechanism for the same users; None where distances to outputs are not known."""
    data = problem.data
    if not data.crossed:
        return None
    away = data.metric.to_outputs(problem.users)
    scores = np.exp(-float(data.epsilon) / 2 * (away - away.min(axis=1, keepdims=True)))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def figures(problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> dict[str, Figure]:
    """The figures by file name."""
    made: dict[str, Figure] = {}
    user, data = _middle(problem), problem.data
    if data.outputs.coordinates is not None:
        made["row"] = row_figure(release, problem, user)
    if result.method != "exact":
        made["range"] = range_figure(release, problem, user)
        made["upload"] = upload_figure(release, problem, user)
    rows = [(f"this release ({result.method})", float(result.objective.value))]
    plain = _exponential(problem)
    if plain is not None:
        rows.append(("exponential mechanism", float(_user_losses(problem, plain).mean())))
    best = float(data.cost[problem.users].mean(axis=0).min())
    rows.append(("one output for all", best))
    unit = f"mean loss of the users ({data.loss_unit})"
    made["loss-beside-baselines"] = themed(beside)(rows, unit, None)
    trajectory = trajectory_of(result)
    if len(trajectory) > 1:
        made["convergence"] = convergence(trajectory, "objective of CLR-Geo (scaled)")
    return made


def sections(problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> list[Section]:
    """Users' rows and losses, LR set and range, what the server saw, what is left open, convergence."""
    drawn = figures(problem, release, result)
    central = result.method != "exact"
    made = []
    if fits(release.probabilities):
        lead = "Choose a user, by the list or by a click on the map, to see where its report falls."
        made.append(explorer(_explored(problem, release, central), lead, "Where a user's report falls"))
    elif "row" in drawn:
        made.append(figure_section("Where one user's report falls", drawn["row"], "One of them."))
    lead = "The mean over the users of what each loses by its own row; shorter is better."
    made.append(figure_section("Loss beside baselines", drawn["loss-beside-baselines"], lead))
    made.append(_users(problem, release))
    if central:
        made += [_range(problem, release, drawn), _server(problem, drawn)]
    else:
        lead = (
            "Nothing: users upload nothing. The server publishes its part once (public.npz), and each user computes "
            "its own row from it."
        )
        made.append(Section(title="What the server saw", html="", lead=lead))
    made += _open(problem, result)
    if "convergence" in drawn:
        lead = "Bounds of the users' common program, round by round; the truth lies between the lines."
        made.append(figure_section("Convergence of the bounds", drawn["convergence"], lead))
    return made


def _explored(problem: LRGeoInstance, release: LRGeoRelease, central: bool) -> Explored:
    data, users = problem.data, problem.users
    own = data.outputs is data.records
    placed = layout(data.records) if own else layout(data.records, data.outputs)
    marked = None
    if own and central and len(users) <= SHOWN:
        marked = [np.flatnonzero(row).tolist() for row in lr_sets(problem, users)]
    loss = "expected loss"
    return Explored(
        rows=release.records.tolist(),
        outputs=release.outputs.tolist(),
        probabilities=release.probabilities,
        places=placed[0].places[users],
        output_places=placed[-1].places,
        axes=placed[0].axes,
        scale=placed[0].unit,
        facts={loss: _user_losses(problem, release.probabilities)}
        | ({"places in its LR set": np.array([float(len(some)) for some in marked])} if marked is not None else {}),
        unit={loss: data.loss_unit},
        marked=marked,
        marking="" if marked is None else "the user's LR set: the places that its own matrix has rows for",
    )


def _users(problem: LRGeoInstance, release: LRGeoRelease) -> Section:
    loss, unit = _user_losses(problem, release.probabilities), problem.data.loss_unit
    header = ("user", f"expected loss ({unit})", "likeliest output", "its probability")
    likeliest = release.probabilities.argmax(axis=1)
    rows = [
        (
            str(release.records[m]),
            float(loss[m]),
            str(release.outputs[likeliest[m]]),
            float(release.probabilities[m, likeliest[m]]),
        )
        for m in range(min(SHOWN, len(loss)))
    ]
    lead = "What each user loses on average by its own row." + (
        f" The first {SHOWN} of {len(loss)}." if len(loss) > SHOWN else ""
    )
    return table_section("Users", header, rows, lead)


def _range(problem: LRGeoInstance, release: LRGeoRelease, drawn: Mapping[str, Figure]) -> Section:
    options, unit = problem.declared.lr_geo, problem.data.unit
    lead = (
        f"One user, {release.records[_middle(problem)]}. Its own matrix has a row for every place of the LR set, those "
        f"within a path of {options.radius:g} {unit}. In such a row the outputs within {options.exponential_beyond:g} "
        f"{unit} are weighed freely, those up to {options.obfuscation_radius:g} {unit} fall off by the exponential "
        "form, and beyond that all are alike."
    )
    return figure_section("LR set and range", drawn["range"], lead)


def _server(problem: LRGeoInstance, drawn: Mapping[str, Figure]) -> Section:
    users, data = problem.users[:SHOWN], problem.data
    sizes = lr_sets(problem, users).sum(axis=1)
    rows = [
        (str(data.records.ids[user]), int(n), int(n * n), int(3 * n * len(data.outputs)))
        for user, n in zip(users.tolist(), sizes.tolist(), strict=True)
    ]
    header = ("user", "places in the LR set", "distances sent", "other numbers sent")
    counts = table_section("What each user sent", header, rows).html
    lead = (
        "Coefficients of each user's program: distances between the places of its LR set, and for each of them and "
        "every output a distance, a cost, and whether it is weighed freely. Rows come in random order and unnamed, as "
        "on the left; the server sends a matrix back. This hides names, not the user: who knows the map can find the "
        "place from such numbers (privopt audit says how often)."
    )
    return pair_section(
        "What the server saw", [drawing("Distances as the server saw them", drawn["upload"]), counts], lead
    )


def map_layer(problem: LRGeoInstance, release: LRGeoRelease) -> Layer | None:
    """Users with their losses, and outputs with the mean probability that a user releases them; None without places."""
    data, users = problem.data, problem.users
    if data.records.kind not in ("geographic", "planar") or data.records.coordinates is None:
        return None
    z, nobody, empty = release.probabilities, [None] * len(users), [None] * len(data.outputs)
    own: dict[str, Any] = {
        "kind": ["user"] * len(users),
        "expected_loss": _user_losses(problem, z),
        "likeliest_output": release.outputs[z.argmax(axis=1)],
        "its_probability": z.max(axis=1),
        "released": nobody,
    }
    ids, places = np.asarray(data.records.ids)[users], data.records.coordinates[users]
    chosen = Space(ids=tuple(ids.tolist()), coordinates=places, kind=data.records.kind)
    rest = dict.fromkeys(("expected_loss", "likeliest_output", "its_probability"), empty)
    outputs = {"kind": ["output"] * len(data.outputs), **rest, "released": z.mean(axis=0)}
    features = [*space_features(chosen, own), *space_features(data.outputs, outputs)]
    return Layer(kind=data.records.kind, features=features)


def _open(problem: LRGeoInstance, result: Result) -> list[Section]:
    """What is not covered, and what the whole population loses, where details say so."""
    details, made = result.details.facts, []
    gv, population = details.get("gv"), details.get("population")
    if gv:
        lead = (
            "The guarantee holds inside each user's own matrix. An observer of several users compares rows of "
            "different matrices; these inequalities fail there (Equations 34 and 35 of the paper)."
        )
        facts = [(name.replace("_", " "), value) for name, value in gv.items()]
        made.append(table_section("Not covered: rows of different users", ("what", "measured"), facts, lead))
    if population:
        lead = "Prior-weighted over every record, beside the exponential mechanism."
        facts = [(name.replace("_", " "), value) for name, value in population.items() if value is not None]
        title, unit = "Loss of the whole population", problem.data.loss_unit
        made.append(table_section(title, ("what", f"loss ({unit})"), facts, lead))
    return made
