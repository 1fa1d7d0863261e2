"""Defaults, under a file, under options, under --set."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.config.configuration import configure
from polyrhythm.config.keys import KEYS, OF_EXECUTION, TAKES, Configuration


def written(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def test_later_layers_win(tmp_path: Path) -> None:
    file = written(tmp_path, 'method = "scaffold"\nrounds = 7\nclients = 9\n[evaluation]\nevery = 3\n')
    assert configure(file, {}, []).method == "scaffold"
    made = configure(file, {"rounds": 8, "clients": None}, ["clients=10"])
    assert (made.method, made.rounds, made.clients, made.evaluation.every) == ("scaffold", 8, 10, 3)
    made = configure(file, {}, ["evaluation.train_samples=50", "method=fedprox(mu=1) | sweep"])
    assert (made.evaluation.every, made.evaluation.train_samples) == (3, 50)
    assert made.method == "fedprox(mu=1) | sweep"


def test_a_task_has_settings_in_every_layer(tmp_path: Path) -> None:
    file = written(tmp_path, 'task = "multilabel(k=3)"\n')
    assert configure(None, {}, []).task is None
    assert configure(file, {}, []).task == "multilabel(k=3)"
    assert configure(file, {"task": "multilabel(k=2)"}, []).task == "multilabel(k=2)"
    assert configure(file, {}, ["task=multilabel(labels=sum, k=4)"]).task == "multilabel(labels=sum, k=4)"


def test_a_list_of_names_is_a_pipe(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'method = ["fedprox(mu=0.01)", "server_adam(lr=0.01)"]\nfleet = ["tiers", "faults(dropout=0.1)"]\n'
    )
    assert configure(file, {}, []).fleet == "tiers | faults(dropout=0.1)"
    assert configure(file, {}, []).method == "fedprox(mu=0.01) | server_adam(lr=0.01)"


def test_defaults_follow_from_the_rest() -> None:
    made = configure(None, {}, [])
    assert (made.clients, made.rounds, made.model) == (20, 30, "mlp")
    assert configure(None, {"partition": "by_column(column=ward)"}, []).clients is None
    assert configure(None, {"until": "updates=100"}, []).rounds is None
    assert configure(None, {"data": "shakespeare(path=x)"}, []).model == "char-lstm"


def test_until_and_seeds_in_both_forms(tmp_path: Path) -> None:
    text = configure(None, {"until": "accuracy=0.9, updates=1000", "seeds": "0-2,7"}, [])
    assert (text.until.accuracy, text.until.updates, text.until.time) == (0.9, 1000, None)
    assert text.seeds == (0, 1, 2, 7)
    file = written(tmp_path, "seeds = [0, 3]\n[until]\ntime = 60.0\n")
    assert configure(file, {}, []).seeds == (0, 3)
    assert configure(file, {}, []).until.time == 60
    assert configure(file, {"seed": 5}, []).seeds is None


def test_a_file_of_another_system_is_read_or_its_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_bytes("rounds = 7\r\nclients = 3\r\n".encode("utf-8-sig"))
    assert configure(file, {}, []).rounds == 7
    file.write_bytes("rounds = 7\r\n".encode("utf-16"))
    with pytest.raises(UserError, match="UTF-16"):
        configure(file, {}, [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("learning_rte = 0.1", "unknown key 'learning_rte'"),
        ("roundz = 3", "unknown key 'roundz'"),
        ("rounds = 1e2", "rounds = 100.0"),
        ('rounds = "30"', "rounds = '30'"),
        ("clients = -3", "clients = -3"),
        ("seed = true", "seed = True"),
        ("[evaluation]\nevry = 2", "unknown key 'evry'"),
        ("[until]\naccuracy = 90", "until.accuracy = 90"),
        ("validation = 1.0", "validation = 1.0"),
        ("rounds =", "experiment.toml"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(UserError) as caught:
        configure(written(tmp_path, text), {}, [])
    assert found in caught.value.found
    assert "experiment.toml" in caught.value.found


def test_all_mistakes_are_said_at_once_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        configure(written(tmp_path, 'roundz = 3\nclients = "many"\n'), {"seed": -1}, [])
    for part in ("3 mistakes", "'roundz'", "did you mean 'rounds'", "clients = 'many'", "command line: seed = -1"):
        assert part in caught.value.found


@pytest.mark.parametrize("setting", ["rounds", "=3", "evaluation.=3", "rounds=", "no.such=1", "rounds.x=1"])
def test_a_wrong_setting_is_refused(setting: str) -> None:
    with pytest.raises(UserError):
        configure(None, {}, [setting])


@pytest.mark.parametrize("text", ["2-0", "a", "1..3", "", "-1"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        configure(None, {"seeds": text}, [])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        configure(tmp_path / "nothing.toml", {}, [])


def test_what_decides_no_number_is_no_part_of_the_configuration() -> None:
    one = configure(None, {"out": "a", "name": "x", "workers": 2}, []).plain()
    assert one == configure(None, {"out": "b", "name": "y", "driver": "inline"}, []).plain()
    assert set(one) == {key for key in KEYS if "." not in key} - {
        *(*OF_EXECUTION, "track", "tracking", "out", "name", "seeds")
    }


def test_seed_and_seeds_in_one_place_are_refused(tmp_path: Path) -> None:
    for file, options in ((None, {"seed": 3, "seeds": "0-2"}), (written(tmp_path, "seed = 3\nseeds = [0]"), {})):
        with pytest.raises(UserError, match="seed = 3 and seeds"):
            configure(file, options, [])


def test_a_mistake_is_said_with_where_it_was_written(tmp_path: Path) -> None:
    file = written(tmp_path, 'clients = "six"\nlocal_test = 2\n[evaluation]\nevry = 3')
    with pytest.raises(UserError) as caught:
        configure(file, {"rounds": 0}, ["seed=-1"])
    assert caught.value.found.splitlines()[1:] == [
        f"    {file}, line 1: clients = 'six'; expected a whole number, 1 or more",
        "    the command line: rounds = 0; expected a whole number, 1 or more",
        "    the command line: seed = -1; expected a whole number from 0 to 2^63 - 1",
        f'    {file}, line 2: local_test = 2; expected a share: a number of at least 0 and less than 1, or "natural"',
        f"    unknown key 'evry' in {file}, line 4 (evaluation); did you mean 'every'?",
    ]


def test_every_key_says_what_it_takes_and_means() -> None:
    assert set(TAKES) == set(KEYS)
    assert all(TAKES.values())
    assert all(key.about and key.help for key in KEYS.values())
    assert all(issubclass(key.owner, Settings) for key in KEYS.values())


def test_names_and_settings_are_refused_together_each_with_its_line(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'data = "digitz"\ncohort = 10\nmethod = [\n  "fedprox(m=1)",\n  "prox(mu=-1)",\n]\n'
        'fleet = "tiers | markof"\nmodel = "mlp(hiden=[3])"\npartition = "dirichlet(alpha=0.1"\nrounds = "3"\n',
    )
    with pytest.raises(UserError) as caught:
        configure(file, {"task": "clasification"}, ["every=2", "seed", "evaluation.every=0"])
    found = [mistake.found.partition("\n")[0] for mistake in caught.value.mistakes]
    assert sorted(found) == sorted(
        [
            f"{file}, line 1: data: unknown data set 'digitz'",
            f"unknown key 'cohort' in {file}, line 2",
            f"{file}, line 4: method: unknown setting 'm' in fedprox",
            f"{file}, line 5: method: prox: mu = -1",
            f"{file}, line 7: fleet: unknown part of a fleet 'markof'",
            f"{file}, line 8: model: unknown setting 'hiden' in the model mlp",
            f"{file}, line 9: partition: text that cannot be read",
            f"{file}, line 10: rounds = '3'",
            "the command line: task: unknown task 'clasification'",
            "unknown key 'every' in the command line",
            "--set seed",
            "the command line: evaluation.every = 0",
        ]
    )
    fixes = {mistake.fix for mistake in caught.value.mistakes}
    assert {"did you mean 'evaluation.every'?", "did you mean 'digits' or 'spoken-digits'?"} <= fixes
    assert any('method = "fedavg(cohort=…)"' in fix for fix in fixes)


def test_what_the_command_line_says_over_a_file_is_its_own_mistake(tmp_path: Path) -> None:
    file = written(tmp_path, 'method = ["fedavg", "prox"]\nseed = 3\n[evaluation]\nevery = 0\n')
    with pytest.raises(UserError) as caught:
        configure(file, {"method": "fedavg | proxx"}, ["evaluation.groups=3"])
    found = [mistake.found for mistake in caught.value.mistakes]
    assert found == [
        f"{file}, line 4: evaluation.every = 0",
        "the command line: evaluation.groups = 3",
        "the command line: method: unknown part 'proxx'",
    ]


def test_parts_that_do_not_go_together_stand_where_the_method_does(tmp_path: Path) -> None:
    file = written(tmp_path, 'seed = 1\nmethod = ["scaffold", "local_adam"]\n')
    with pytest.raises(UserError) as caught:
        configure(file, {}, [])
    assert caught.value.found == f"{file}, line 2: method: control_variates with local_adam"


def test_names_are_made_once(tmp_path: Path) -> None:
    made = configure(None, {"model": "logistic"}, [])
    assert made.resolved_parts is made.resolved_parts
    assert made == dataclasses.replace(Configuration().resolved(), model="logistic")
    assert Configuration(method="fedprox").resolved().resolved_parts.recipe.title == "fedprox"
    with pytest.raises(UserError, match="2 mistakes"):
        Configuration(method="fedprx", model="lenet6").resolved().resolved_parts  # noqa: B018


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "9" * 5000,
        "a = " + "[" * 5000 + "]" * 5000,
        'method = "fedavg(lr=' + "9" * 5000 + ')"',
        'method = "fedavg(lr=' + "[" * 5000 + '"',
        'method = "' + "fedavg(lr=" * 5000 + '"',
        'seeds = "0-99999999999"',
        'seeds = "0-' + "9" * 5000 + '"',
        "seed = 1\nseed = 2",
    ],
    ids=lambda text: text[:24],
)
def test_texts_of_any_size_are_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        configure(written(tmp_path, text), {}, [])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UserError, match="can't decode byte"):
        configure(tmp_path / "x.toml", {}, [])
    with pytest.raises(UserError, match="Is a directory"):
        configure(tmp_path, {}, [])
