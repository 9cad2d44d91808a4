"""Keys that were misspelt or put elsewhere."""

from __future__ import annotations

import pytest

from catchline.config.base import validate
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import check_run
from catchline.config.schema import RunConfig, SearchConfig
from catchline.config.spellings import place_of_key
from catchline.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rate", "training.optimizer.learning_rate"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
        ("training.learning-rat", "training.optimizer.learning_rate"),
        ("training.max_epoch", "training.max_epochs"),
        ("batch_size", "training.batch_size"),
        ("search.beam", "search.beam_size"),
        ("hidden_size", "model.hidden_size"),
        ("coverage", "model.attention.coverage"),
        ("max_vocabulary", "text.tokenizer.max_vocabulary"),
    ],
)
def test_what_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_run(resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "tiny", [f"{key}=1"]))
    assert f"Did you mean '{meant}'?" in str(caught.value)


def test_a_section_alone_is_named_without_its_section() -> None:
    with pytest.raises(ConfigError, match=r"'search.beam'. Did you mean 'beam_size'"):
        validate(SearchConfig, {"beam": 3}, where="search")
    assert place_of_key("zzz", RunConfig, []) == "", "no hint"


@pytest.mark.parametrize("given", ["renormalise", {"type": "renormalise"}, ["renormalise"]])
def test_scorers_in_another_form_are_told_theirs(given: object) -> None:
    with pytest.raises(
        ConfigError, match=r"'search\.scorers': takes a list .*scorers=\[\{type: repetition_penalty, penalty: 1.2\}\]"
    ):
        validate(SearchConfig, {"scorers": given}, where="search")
    form = {"scorers": [{"type": "renormalise"}]}
    assert validate(SearchConfig, form, where="search").scorers == tuple(form["scorers"])
