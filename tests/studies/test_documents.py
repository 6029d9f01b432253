"""The documents: names that tell them apart, references that exist, and one sentence for a wrong name."""

from __future__ import annotations

import pytest

from mindgap.core import UnknownNameError
from mindgap.core.references import bibliography
from mindgap.studies.documents import DOCUMENTS, document_of


def test_names_and_letters_are_unique() -> None:
    words = [word for one in DOCUMENTS for word in (one.name, *one.letters)]
    assert len(set(words)) == len(words)
    assert set("".join(one.letters for one in DOCUMENTS)) == set("VTPKES")


def test_references_exist() -> None:
    assert all(set(one.cites) <= set(bibliography()) and one.cites for one in DOCUMENTS)


@pytest.mark.parametrize(("word", "name"), [("vbsw", "vbsw"), ("T", "vbsw"), ("k", "darc")])
def test_is_found_by_name_or_letter(word: str, name: str) -> None:
    assert document_of(word).name == name


@pytest.mark.parametrize("word", ["", "stabilty", "Z", "003"])
def test_an_unknown_document(word: str) -> None:
    with pytest.raises(UnknownNameError, match="document must be one of the known names"):
        document_of(word)
