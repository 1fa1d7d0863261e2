"""A value in a file: whole, or known to be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.stored import Damaged, load, store

CODEC = Codec([])
VALUE = {"weights": torch.linspace(0, 1, 7), "half": torch.ones(3, dtype=torch.bfloat16), "n": [1, 2.5, "three"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "value.safetensors"
    assert store(path, CODEC, VALUE, {"version": "3"}) == path.stat().st_size
    return path


def test_it_comes_back_where_kernels_want_it(whole: Path) -> None:
    value, about = load(whole, CODEC)
    assert about == {"version": "3"}
    assert torch.equal(value["weights"], VALUE["weights"])
    assert torch.equal(value["half"], VALUE["half"])
    assert value["n"] == VALUE["n"]
    assert value["weights"].data_ptr() % 64 == 0


def test_any_tool_for_safetensors_can_look_into_it(whole: Path) -> None:
    with safe_open(whole, "pt") as file:
        assert file.metadata()["version"] == "3"
        assert torch.equal(file.get_tensor("0"), VALUE["weights"])


@settings(max_examples=60)
@given(data=st.data())
def test_a_torn_file_is_known(whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = whole.read_bytes()
    path = tmp_path_factory.mktemp("torn") / "value.safetensors"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(Damaged):
        load(path, CODEC)


@settings(max_examples=120)
@given(data=st.data())
def test_a_changed_byte_is_known(whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("changed") / "value.safetensors"
    path.write_bytes(content)
    with pytest.raises(Damaged):
        load(path, CODEC)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x08\0\0\0\0\0\0\0[1,2,3] ", b"PK\x03\x04" * 10])
def test_what_is_no_such_file_is_known(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.safetensors"
    path.write_bytes(content)
    with pytest.raises(Damaged):
        load(path, CODEC)
    with pytest.raises(Damaged):
        load(tmp_path / "not there", CODEC)


def test_bytes_after_its_end_are_known(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer.safetensors"
    path.write_bytes(whole.read_bytes() + b"\0")
    with pytest.raises(Damaged):
        load(path, CODEC)
