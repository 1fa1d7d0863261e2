"""Two methods between their two bounds, in one picture: how much of what there is to gain does each one get?

python examples/compare.py [PICTURE]
"""

from __future__ import annotations

import sys

import altair as alt

import polyrhythm as pr


def main(picture: str = "compare.svg", rounds: int = 40) -> None:
    """Runs all four on the same clients, invites the same cohorts in both methods, and draws the curves.

    Args:
        picture: file to write; .svg, .png, .pdf or .html.
        rounds: versions of each run.
    """
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.1), clients=20, seed=0)
    recipes = {
        "all data in one place": pr.centralised(epochs=5),
        "SCAFFOLD": pr.scaffold(cohort=5, epochs=5),
        "FedAvg": pr.fedavg(cohort=5, epochs=5),
        "every client alone": pr.local_only(cohort=5, epochs=5),
    }
    points = []
    print(f"{'':21}  final  last 20 rounds")
    for name, recipe in recipes.items():
        experiment = pr.Experiment(federation=federation, model="mlp", recipe=recipe, rounds=rounds, name=name)
        run = pr.run(experiment)
        print(f"{name:21}  {run.summary['final_accuracy']:.3f}  {run.summary['last20_mean']:.3f}")
        points += [{"round": version, "accuracy": score, "method": name} for version, score in run.scores]
    draw(points, list(recipes), picture)


def draw(points: list[dict[str, object]], names: list[str], picture: str) -> None:
    """One curve per method; the two bounds, first and last, are dashed."""
    dashes = [[5, 4] if name in (names[0], names[-1]) else [1, 0] for name in names]
    legend = alt.Legend(orient="bottom", symbolSize=400, columns=2, columnPadding=40)
    chart = (
        alt.Chart(alt.InlineData(values=points), title="Digits, 20 clients, dirichlet(alpha=0.1)")
        .mark_line()
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("method:N", title=None, scale=alt.Scale(domain=names), legend=legend),
            strokeDash=alt.StrokeDash("method:N", title=None, scale=alt.Scale(domain=names, range=dashes)),
        )
        .properties(width=520, height=280)
        .configure_axis(labelSeparation=8)
    )
    chart.save(picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "compare.svg")
