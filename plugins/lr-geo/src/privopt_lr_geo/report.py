"""The report on an LR-Geo release, with an interactive map, figures, tables, and a section on what the server saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from privopt.arrays import Bools, Figure, Floats, Ints
from privopt.errors import number_of
from privopt.interfaces import Reporting, Result
from privopt.interfaces.reporting import Layer
from privopt.report import Section, drawing, figure_section, pair_section, table, table_section, use_theme
from privopt.report.charts import draw_losses, fit_height, set_up_map
from privopt.report.theme import BAD, INK, LINE, MARK, MAX_VECTOR_MARKS, PALE, RIM, add_legend, axes_of
from privopt_lr_geo.lr_sets import PathDistances
from privopt_lr_geo.privacy import meaning
from privopt_lr_geo.problem import PATH_TOLERANCE, LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.attacks.meaning import describe_error, describe_guess, guess_rates, in_readers_unit, noun_of
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.report.explorer import ExplorerData, explorer_section, lines_between
from privopt_metric_dp.report.figures import convergence, layout, spread_from
from privopt_metric_dp.report.pages import meaning_section, space_features, trajectory_of
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.space.places import Space

__all__ = ["LRGeoReporting"]

SHOWN_USERS: Final = 200
"""The maximum number of users whose LR sets are marked on the map, and of uploads listed in the table."""


class LRGeoReporting(Reporting[LRGeoInstance, LRGeoRelease]):
    """The report on an LR-Geo release, showing where reports fall, how much users lose, and what is not guaranteed."""

    def report(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[Section]:
        """Return the sections of the report, in order."""
        # `central` is true if users upload something to a server.
        figures, central = self.figures(problem, release, result), result.method != "exact"
        sections = []
        lead = "Choose a user, by its place, by the list or by a click on the map, to see where its report falls."
        explored = explorer_section(_explorer_data(problem, release, central), lead, "Where a user's report falls")
        # If there is no map to explore, a figure of one user's row replaces it, if that can be drawn.
        if explored is not None:
            sections.append(explored)
        elif "row" in figures:
            sections.append(figure_section("Where one user's report falls", figures["row"], "One of them."))
        sections.append(meaning_section(meaning(problem, release, result), problem.data.records, result))
        lead = "The average loss of the users, each by its own row. A shorter bar is better."
        sections.append(figure_section("Loss next to baselines", figures["loss-beside-baselines"], lead))
        sections.append(_users_section(problem, release))
        if central:
            sections += [_range_section(problem, figures["range"]), _server_section(problem, figures["upload"])]
        else:
            lead = (
                "Nothing: users upload nothing. The server publishes its part once (public.npz), and each user "
                "computes its own row from it."
            )
            sections.append(Section(title="What the server saw", lead=lead))
        sections += _uncovered_sections(problem, result)
        if "convergence" in figures:
            lead = "Bounds of the users' common program, round by round; the truth lies between the lines."
            sections.append(figure_section("Convergence of the bounds", figures["convergence"], lead, for_experts=True))
        return sections

    def headline(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> str:
        """Summarise how many users report, how far off reports are, and how often an attacker guesses right."""
        data, noun = problem.data, noun_of(problem.data.records)
        published = (
            f"{number_of(len(problem.users), 'user')} {'reports' if len(problem.users) == 1 else 'report'} one of "
            f"{number_of(len(data.outputs), noun)}{'' if len(problem.users) == 1 else ' each'}, drawn at random."
        )
        error = describe_error(data, result.objective, problem.declared.utility.kind)
        rates = guess_rates(release, data, np.asarray(problem.users))
        return f"{published} {error} {describe_guess(*rates, f'{noun} of a user')}"

    def in_readers_unit(self, problem: LRGeoInstance, result: Result, value: float) -> str:
        """Format a loss in the unit declared for readers by ``[utility] per_km``."""
        return in_readers_unit(problem.data, result.objective, value)

    def figures(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> dict[str, Figure]:
        """Draw the figures of the report.

        They show the row, the LR set and the upload of one user, the loss compared with baselines, and the bounds over
        time.

        Args:
            problem: The problem with its users.
            release: The release with the users' rows.
            result: The contents of result.json. Only the method, the loss and the trajectory are used.

        Returns:
            The figures by name, without those that do not apply to the problem or the method.
        """
        figures: dict[str, Figure] = {}
        user, data, users = _pick_user(problem), problem.data, problem.users  # `user` is an index into `users`
        if data.outputs.coordinates is not None:
            figures["row"] = spread_from(release, data, str(release.records[user]))
        if result.method != "exact":
            figures["range"] = _range_figure(release, problem, user)
            figures["upload"] = _upload_figure(problem, user)
        rows = [(f"this release ({result.method})", float(result.objective.value))]
        if data.crossed:
            exponential_matrix = exponential(data.metric.to_outputs(users), float(data.epsilon))
            rows.append(("exponential mechanism", float(_users_losses(problem, exponential_matrix).mean())))
        # Always reporting the best single output reveals nothing, so every mechanism should do better.
        rows.append(("one output for all", float(data.cost[users].mean(axis=0).min())))
        figures["loss-beside-baselines"] = draw_losses(rows, f"mean loss of the users ({data.loss_unit})", None)
        trajectory = trajectory_of(result)
        if len(trajectory) > 1:
            figures["convergence"] = convergence(trajectory, "objective of CLR-Geo (scaled)")
        return figures

    def geo(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Layer | None:
        """Return a map layer with a feature for each user and output, or None if places have no coordinates.

        A user's feature gives the expected loss and the likeliest output. An output's feature gives its mean
        probability over the users.

        Args:
            problem: The problem with its users.
            release: The release with the users' rows.
            result: The contents of result.json, which are not used.
        """
        data, users = problem.data, problem.users
        if data.records.kind not in ("geographic", "planar") or data.records.coordinates is None:
            return None
        z = release.probabilities
        user_columns: dict[str, Any] = {
            "kind": ["user"] * len(users),
            "expected_loss": _users_losses(problem, z),
            "likeliest_output": release.outputs[z.argmax(axis=1)],
            "its_probability": z.max(axis=1),
            "released": [None] * len(users),
        }
        # All features of a layer have the same columns. Columns about users are empty for outputs, and vice versa.
        outputs: dict[str, Any] = {name: [None] * len(data.outputs) for name in user_columns}
        outputs |= {"kind": ["output"] * len(data.outputs), "released": z.mean(axis=0)}
        places = data.records.coordinates[users]
        user_space = Space(ids=tuple(release.records.tolist()), coordinates=places, kind=data.records.kind)
        features = [*space_features(user_space, user_columns), *space_features(data.outputs, outputs)]
        return Layer(kind=data.records.kind, features=features)


def _lr_sets(problem: LRGeoInstance, users: Ints) -> Bools:
    """Return an (M, N) mask that is true for the records in each user's LR set (Definition 4.1).

    Args:
        problem: The problem, with the radius Gamma.
        users: (M,) The indices of the users' records.
    """
    limit = problem.declared.lr_geo.radius * (1.0 + PATH_TOLERANCE)
    return np.asarray(PathDistances(problem.data).rows(users, limit) <= limit)


def _pick_user(problem: LRGeoInstance) -> int:
    """Return the index in ``problem.users`` of the user shown in the figures, which is the middle one."""
    return len(problem.users) // 2


def _users_losses(problem: LRGeoInstance, z: Floats) -> Floats:
    """Return the expected loss of each user.

    Args:
        problem: The problem with its M users.
        z: (M, K) The probability of each output for each user.

    Returns:
        An array of shape (M,), in the same unit as the costs.
    """
    return np.asarray(np.einsum("ik,ik->i", z, problem.data.cost[problem.users]))


def _place_layouts(data: MetricData) -> Any:
    """Return a sequence of plot layouts, with the one for the records first and the one for the outputs last.

    If the outputs are the records, there is a single layout, which is both the first and the last item.
    """
    return layout(data.records) if data.outputs is data.records else layout(data.records, data.outputs)


@use_theme
def _range_figure(release: LRGeoRelease, problem: LRGeoInstance, user: int) -> Figure:
    """Draw a map of a user's LR set and of the outputs, coloured by how their probabilities are determined.

    The probabilities of nearby outputs are optimised freely. The probabilities of more distant outputs follow the
    exponential form, with the same coefficient at all distances beyond the obfuscation radius.

    Args:
        release: The release, which provides the users' ids.
        problem: The problem with its users.
        user: The user's index in ``problem.users``.
    """
    data, options = problem.data, problem.declared.lr_geo
    placed = _place_layouts(data)
    record = int(problem.users[user])
    distances = data.metric.to_outputs(np.array([record]))[0]
    is_near, is_far = distances <= options.exponential_beyond, distances > options.obfuscation_radius
    figure, axes = axes_of(7.6)
    x, y = placed[-1].places.T
    streets = lines_between(data) if data.outputs is data.records else None
    set_up_map(axes, placed[0].axes, () if streets is None else placed[-1].places[streets])
    # Outputs beyond the radius are drawn as crosses, because pale and grey dots look alike on some screens.
    for mask, colour, marker, name in (
        (is_near, MARK, "o", f"optimised freely: within {options.exponential_beyond:g} {data.unit}"),
        (~is_near & ~is_far, PALE, "o", "by the exponential form"),
        (is_far, LINE, "X", f"without further decay: beyond {options.obfuscation_radius:g} {data.unit}"),
    ):
        is_raster = len(x) > MAX_VECTOR_MARKS
        axes.scatter(x[mask], y[mask], s=60, color=colour, marker=marker, label=name, rasterized=is_raster, **RIM)
    record_places = placed[0].places
    for mask, size, colour, width, name in (
        (_lr_sets(problem, problem.users[[user]])[0], 95, INK, 1.0, "LR set"),
        (np.arange(len(record_places)) == record, 190, BAD, 2.2, f"user {release.records[user]}"),
    ):
        x, y = record_places[mask].T
        axes.scatter(x, y, s=size, facecolors="none", edgecolors=colour, linewidths=width, label=name)
    fit_height(figure, axes)
    add_legend(figure)
    return figure


@use_theme
def _upload_figure(problem: LRGeoInstance, user: int) -> Figure:
    """Draw the distance matrix of a user's upload as the server sees it, without labels and in random order.

    Args:
        problem: The problem with its users.
        user: The user's index in ``problem.users``.
    """
    records = np.flatnonzero(_lr_sets(problem, problem.users[[user]])[0])
    # This permutation is made up for the picture. The order of the upload depends on a secret seed.
    shuffled = np.random.default_rng(user).permutation(records)
    figure, axes = axes_of(5.6, 4.4)
    image = axes.imshow(problem.data.metric.between(shuffled[:, None], shuffled[None, :]), cmap="viridis")
    figure.colorbar(image, ax=axes, label=f"distance ({problem.data.unit})", location="bottom", aspect=40)
    axes.set(xlabel="a place, unnamed", ylabel="a place, unnamed", xticks=[], yticks=[])
    return figure


def _explorer_data(problem: LRGeoInstance, release: LRGeoRelease, central: bool) -> ExplorerData:
    """Prepare the data for the interactive map, which shows where a chosen user's report can fall.

    Args:
        problem: The problem with its users.
        release: The release with the users' rows.
        central: Whether each user has a matrix of their own. If so, the users' LR sets are marked on the map, provided
            that the outputs are the records and there are at most `SHOWN_USERS` users.
    """
    data, users = problem.data, problem.users
    placed, loss = _place_layouts(data), "average loss"
    facts, marked = {loss: _users_losses(problem, release.probabilities)}, None
    # The explorer can mark only outputs, so LR sets, which consist of records, are marked if outputs are the records.
    if data.outputs is data.records and central and len(users) <= SHOWN_USERS:
        marked = [np.flatnonzero(row).tolist() for row in _lr_sets(problem, users)]
        facts["places in its LR set"] = np.array([float(len(records)) for records in marked])
    return ExplorerData(
        rows=release.records.tolist(),
        outputs=release.outputs.tolist(),
        probabilities=release.probabilities,
        places=placed[0].places[users],
        output_places=placed[-1].places,
        axes=placed[0].axes,
        scale=placed[0].unit,
        facts=facts,
        unit={loss: data.loss_unit},
        streets=lines_between(data) if data.outputs is data.records else None,
        streets_join_outputs=True,
        noun="user",
        descriptions=[data.records.description(user) for user in users.tolist()],
        output_descriptions=[data.outputs.description(output) for output in range(len(data.outputs))],
        marked=marked,
        marking="" if marked is None else "the user's LR set: the places that its own matrix has rows for",
    )


def _users_section(problem: LRGeoInstance, release: LRGeoRelease) -> Section:
    """Return a section with a table of the users, listing their expected losses and likeliest outputs."""
    z, unit = release.probabilities, problem.data.loss_unit
    data = problem.data
    likeliest = np.array([data.outputs.label(output) for output in z.argmax(axis=1).tolist()])
    names = np.array([data.records.label(user) for user in problem.users.tolist()])
    columns = (names, _users_losses(problem, z), likeliest, z.max(axis=1))
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    lead = "What each user loses on average by its own row."
    return table_section("Users", ("user", f"average loss ({unit})", "likeliest output", "its probability"), rows, lead)


def _range_section(problem: LRGeoInstance, figure: Figure) -> Section:
    """Return the section that explains one user's LR set and how probabilities depend on distance.

    Args:
        problem: The problem, which provides the radii.
        figure: The map drawn by :func:`_range_figure`.
    """
    options, unit = problem.declared.lr_geo, problem.data.unit
    user = problem.data.records.label(int(problem.users[_pick_user(problem)]))
    lead = (
        f"One user, {user}. Its own matrix has a row for every place of the LR set, those within a path of "
        f"{options.radius:g} {unit}. In such a row the outputs within {options.exponential_beyond:g} {unit} are "
        f"optimised freely, those up to {options.obfuscation_radius:g} {unit} fall off by the exponential form, and "
        "beyond that they decay no further."
    )
    return figure_section("LR set and range", figure, lead)


def _server_section(problem: LRGeoInstance, figure: Figure) -> Section:
    """Return the section on what the server saw, with a figure of one user's upload and a table of upload sizes."""
    users, data = problem.users[:SHOWN_USERS], problem.data
    sizes = zip(users.tolist(), _lr_sets(problem, users).sum(axis=1).tolist(), strict=True)
    rows = [(data.records.label(user), n, n * n, 3 * n * len(data.outputs)) for user, n in sizes]
    header = ("user", "places in the LR set", "distances sent", "other numbers sent")
    counts = table("What each user sent", header, rows, total=len(problem.users))
    lead = (
        "Coefficients of each user's program: distances between the places of its LR set, and for each of them and "
        "every output a distance, a cost, and whether it is optimised freely. Rows come in random order and unnamed, "
        "as in the picture; the server sends a matrix back. This hides names, not users: anyone who knows the map can "
        "find the place from such numbers (privopt audit says how often)."
    )
    picture = drawing("Distances as the server saw them", figure)
    return pair_section("What the server saw", [picture, counts], lead)


def _uncovered_sections(problem: LRGeoInstance, result: Result) -> list[Section]:
    """Return the sections on what the guarantee does not cover, and on the loss of the whole population.

    The section on what is not covered reports violations between rows of different users. A section is omitted if the
    result does not contain its values.

    Args:
        problem: The problem, which provides the unit of the loss.
        result: The contents of result.json, which include the details.
    """
    details, sections = result.details.facts, []

    def table_rows(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return table rows, each with a readable name and a value, omitting values that are None."""
        return [(name.replace("_", " "), value) for name, value in figures.items() if value is not None]

    if gv := details.get("gv"):
        lead = (
            "The guarantee holds inside each user's own matrix. An observer of several users compares rows of "
            "different matrices; these inequalities fail there (Equations 34 and 35 of the paper)."
        )
        title, header = "Not covered: rows of different users", ("what", "measured")
        sections.append(table_section(title, header, table_rows(gv), lead, for_experts=True))
    if population := details.get("population"):
        lead = "Prior-weighted over every record, next to the exponential mechanism."
        title, header = "Loss of the whole population", ("what", f"loss ({problem.data.loss_unit})")
        sections.append(table_section(title, header, table_rows(population), lead))
    return sections
