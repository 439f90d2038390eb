"""Words without which a pattern cannot fit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.config.catalogues import kernel_rules
from cyclewatch.detectors.kernels.identity import normal_form
from cyclewatch.detectors.kernels.needed_words import needed_words
from shared_data import kernel_names

PATTERNS = sorted({rule.pattern for rule in kernel_rules() if rule.pattern})


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("attention|attn", {"attention", "attn"}),
        ("^at::native::.*(pool|nll_loss)", {"at::native::"}),
        ("(flash|paged)_(decode|prefill)", {"decode", "prefill"}),
        ("(fused_?)?add_?rms", {"add"}),
        ("layers?_norm", {"layer"}),
        (r"sm\d+_fp8_gemm", {"_fp8_gemm"}),
        (r"(^|[_:])mha(_|$)", {"mha"}),
        ("gemm(?!a)|(?<!pre)fill", {"gemm", "fill"}),
        ("ab|attention", set()),
        ("x{0,3}norm", {"norm"}),
        (r"at\.native", {"at.native"}),
        ("no+rm", set()),
        ("", set()),
    ],
)
def test_words_of_a_pattern(pattern: str, words: set[str]) -> None:
    assert needed_words(pattern) == words


def test_every_rule_that_fits_a_real_name_has_its_words_in_it() -> None:
    """Of all shared profiles."""
    keys = [normal_form(name).key.lower() for name in kernel_names()]
    for pattern in PATTERNS:
        words = needed_words(pattern)
        for key in keys:
            if words and re.search(pattern, key):
                assert any(word in key for word in words), (pattern, key)


@given(st.data())
def test_every_text_that_fits_a_rule_has_its_words_in_it(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS))
    text = data.draw(st.from_regex(pattern))
    words = needed_words(pattern)
    assert not words or any(word in text for word in words)


def test_most_rules_are_known_by_words() -> None:
    assert sum(bool(needed_words(pattern)) for pattern in PATTERNS) > 0.7 * len(PATTERNS)
