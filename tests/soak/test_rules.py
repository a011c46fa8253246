"""The exact rewrites of the corpus, applied far more often than `make test` does."""

from __future__ import annotations

import pytest

from rhovec.corpus.rules import FORMS

from ..corpus.test_rules import check_form

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("form", range(len(FORMS)), ids=[form.name for form in FORMS])
def test_a_form_leaves_the_meaning_unchanged(form: int) -> None:
    check_form(form, 30_000, seed=1)
