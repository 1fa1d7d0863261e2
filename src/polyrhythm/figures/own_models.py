"""The models that clients use: how their results move, who gains by a method and who loses, and how fair that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.clients import bands, bands_of
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, methods, shaped
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import WORDS
from polyrhythm.runs.client_gains import scores_used
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.spread import ClientResults
from polyrhythm.runs.spread import spread as over_clients


def own_bands(found: ClientResults) -> list[dict[str, float]]:
    """As `clients.bands`, of clients' own models, where they were measured of more than one version."""
    rows = bands(found._replace(versions=[(version, scores, ()) for version, scores in found.personal]))
    return rows if len(rows) > 1 else []


def gained(subject: Subject, baseline: str | None = None) -> tuple[str, list[dict[str, Any]]]:
    """The baseline, and of each other method and seed its clients by what they gain: which `share` gains at most it."""
    compared = ComparedRuns(subject.runs, group_by=subject.group_by, baseline=baseline)
    rows: list[dict[str, Any]] = []
    for name, of_seeds in compared.client_gains().items():
        for seed, of in of_seeds.items():
            order = sorted(of.items(), key=lambda pair: pair[1])
            places = [
                {"method": name, "seed": seed, "client": client, "share": place / len(order), "gain": value}
                for place, (client, value) in enumerate(order)
            ]
            rows += [*places, {**places[-1], "share": 1.0}]
    return compared.client_baseline, rows


def points(subject: Subject) -> list[dict[str, Any]]:
    """A point for each method: `x`, the mean over clients, and `y`, over their worst tenth; one sd over seeds."""
    found = []
    for name, runs in subject.methods.items():
        over = [over_clients(list(scores_used(subject.client_results(run)).values())) for run in runs]
        known = [one for one in over if one is not None]
        if not known:
            continue
        x, y = spread([one.mean for one in known]), spread([one.worst for one in known])
        found.append(
            {"method": name, "n": len(known), "x": x["mean"], "y": y["mean"]}
            | {"left": x["mean"] - (x["sd"] or 0.0), "right": x["mean"] + (x["sd"] or 0.0)}
            | {"low": y["mean"] - (y["sd"] or 0.0), "high": y["mean"] + (y["sd"] or 0.0)}
        )
    return found


def _moving(subject: Subject, options: Options) -> Chart:
    return bands_of(subject, options, own_bands)


def _gains(subject: Subject, options: Options) -> Chart:
    import altair as alt

    base, rows = gained(subject, options.baseline)
    styles = {name: look for name, look in subject.styles(options.theme).items() if name != base}
    color, dash = methods(styles)
    ink, several = WORDS[options.theme], len({row["seed"] for row in rows}) > 1
    x = alt.X("share:Q", title="clients, those that lose most first", axis=alt.Axis(format="%"))
    signs = alt.Axis(labelExpr="datum.value === 0 ? '0' : format(datum.value, '+~g')")
    y = alt.Y("gain:Q", title=f"gain in {in_words(subject.headline)}", axis=signs)
    zero = chart([{"zero": 0.0}], options.width, 260, f"to {base}, paired by client and seed")
    lines = chart(rows, options.width, 260).mark_line(interpolate="step-after", opacity=0.7 if several else 1.0)
    tips = [*("method:N", "seed:N", "client:N"), alt.Tooltip("gain:Q", format="+.4f")]
    return alt.layer(
        zero.mark_rule(strokeDash=[3, 3], color=ink).encode(y="zero:Q"),
        lines.encode(x=x, y=y, color=color, strokeDash=dash, detail="seed:N", tooltip=tips),
    )


def _fair(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows, styles, size = points(subject), subject.styles(options.theme), (options.width, 260)
    color, _ = methods(styles, stroke=False, shown=len(styles) > 1)
    scale, measure = alt.Scale(zero=False, padding=10), in_words(subject.headline)
    x = alt.X("x:Q", title=f"{measure}, mean over clients", scale=scale)
    y = alt.Y("y:Q", title=f"{measure}, worst tenth of clients", scale=scale)
    tips = [
        "method:N",
        alt.Tooltip("x:Q", format=".4f", title="mean"),
        alt.Tooltip("y:Q", format=".4f", title="worst tenth"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    across = chart(rows, *size).mark_rule(strokeWidth=1.3).encode(x=alt.X("left:Q"), x2="right:Q", y=y, color=color)
    up = chart(rows, *size).mark_rule(strokeWidth=1.3).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    dots = chart(rows, *size).mark_point(filled=True, size=80, opacity=1)
    return alt.layer(across, up, dots.encode(x=x, y=y, color=color, tooltip=tips, **shaped(styles, color)))


def _still(subject: Subject) -> str:
    if missing := _own(subject):
        return missing
    if any(own_bands(subject.client_results(runs[0])) for runs in subject.methods.values()):
        return ""
    return "clients' own models were measured of one version alone; run it with evaluation.personal_every=1"


def _alone(subject: Subject) -> str:
    if missing := _results(subject):
        return missing
    if len(subject.methods) < 2:
        return "there is one method; choose runs of another one, too"
    first, gains = gained(subject)
    if gains:
        return ""
    return (
        f"no client is measured by {first} and another method, with the same seed and data; run both with --seeds 0-2"
    )


_own = needs(
    "client_results",
    "personal IS NOT NULL",
    "no client has a model of its own on record; run a method with one, such as fedper, with local_test=0.2",
)
_results = needs(
    "client_results",
    "1",
    "no result of a single client is on record; run it with local_test=0.2, so that each has a test of its own",
)
FIGURES: Sequence[Figure] = (
    Figure(
        name="own_models",
        title="Results of clients' own models",
        about="How the models that clients use do on their own tests: the median, the middle half and 80 % of them, "
        "and dashed the mean of the worst tenth; the first seed of each method that has such models.",
        lacks=_still,
        drawn=_moving,
    ),
    Figure(
        name="client_gains",
        title="Who gains, and who loses",
        about="What each client gets more than from FedAvg with fine-tuning, where that is among the methods, else "
        "from the first one, or from the one that is chosen, by the model that it uses: clients by their gain, a line "
        "for each seed. Where a line is below 0, clients lose.",
        lacks=_alone,
        drawn=_gains,
    ),
    Figure(
        name="worst_tenth",
        title="The worst tenth against the mean",
        about="How the models that clients use serve the mean client and the worst tenth, one standard deviation over "
        "seeds both ways: up is fairer, to the right is better.",
        lacks=_results,
        drawn=_fair,
    ),
)
