"""What is typed as --model is read as it is meant, or refused in one sentence."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from experiments.models.model_text import TAKEN, in_order, is_own, model_code, parse_argument
from ps_allreduce.errors import UserError
from ps_allreduce.point.models.trained import ARCHITECTURES

HERE = Path("/home/user")

names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in TAKEN
)


@pytest.mark.parametrize("name", [*ARCHITECTURES, "Tensors-16-25MB", "", "ViT-B/16", "py", "keras"])
def test_names_of_the_suite_are_no_code(name: str) -> None:
    assert not is_own(name)


@given(st.lists(names, max_size=3), names, names)
def test_a_file_is_imported_from_its_folder(folders: list[str], stem: str, function: str) -> None:
    path = "/".join([*folders, f"{stem}.py"])
    assert is_own(f"{path}:{function}")
    code = model_code(f"{path}:{function}", HERE)
    assert (code.name, code.root) == (f"{path}:{function}", HERE.joinpath(*folders))
    assert (code.module, code.function, code.files) == (stem, function, (HERE / path,))
    assert code.maker == f"{function}() of {path}"


@given(st.lists(names, min_size=1, max_size=4), names)
def test_a_module_is_imported_from_the_present_folder(parts: list[str], function: str) -> None:
    module = ".".join(parts)
    assume(not module.endswith(".py"))  # that is a file
    code = model_code(f"{module}:{function}", HERE)
    assert (code.root, code.module, code.function) == (HERE, module, function)
    inside = HERE.joinpath(*parts)
    assert code.files == (Path(f"{inside}.py"), inside / "__init__.py")


@pytest.mark.parametrize("text", ["saved.keras", "a/b/saved.keras", "/x/saved.keras", "a:b.keras"])
def test_a_saved_model_is_a_file_without_a_function(text: str) -> None:
    assert is_own(text)
    code = model_code(text, HERE)
    assert (code.root, code.module) == ((HERE / text).parent, Path(text).name)
    assert (code.function, code.files, code.maker) == ("", (HERE / text,), f"loading {text}")


@given(st.text(), st.sampled_from([":", ":build", ".py", ".py:build", ".keras", ".keras:build"]))
def test_any_text_is_read_or_refused_in_one_line(begin: str, end: str) -> None:
    text, refusal = begin + end, ""
    assert is_own(text)
    try:
        assert model_code(text, HERE).name == text
    except UserError as error:
        refusal = str(error)
    assert refusal.isprintable()


@given(st.dictionaries(names, st.text(), max_size=4))
def test_arguments_keep_their_values_in_the_order_of_their_names(values: dict[str, str]) -> None:
    typed = [f"{name}={value}" for name, value in values.items()]
    assert [parse_argument(each) for each in typed] == typed
    assert in_order(typed) == tuple(f"{name}={values[name]}" for name in sorted(values))


def test_an_argument_has_one_value() -> None:
    with pytest.raises(UserError, match="--model-arg names width twice"):
        in_order(["width=1", "depth=2", "width=1"])
