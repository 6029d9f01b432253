"""The images and the claims of a table."""

from __future__ import annotations

import json

import pytest

from mindgap.core import Bar, Claim, Gallery, Sample, Table

ADDRESS = "data:image/png;base64,AAAA"


def table(caption: str) -> Table:
    gallery = Gallery(title="Heaviest", samples=[Sample(image=ADDRESS, caption=caption)])
    return Table(title="t", columns=("a",), rows=((1,),), notes=("n",), charts=(Bar(), gallery))


def test_a_gallery_comes_after_the_notes() -> None:
    text = table("3 → 5").to_markdown()
    assert text.index("- n") < text.index("**Heaviest**") < text.index(ADDRESS)
    assert 'alt="3 → 5"' in text
    assert text.count("<figure") == 1


def test_captions_are_escaped() -> None:
    text = table('<script>"x"</script>').to_markdown()
    assert "<script>" not in text
    assert "&lt;script&gt;&quot;x&quot;" in text


def test_other_charts_leave_no_trace() -> None:
    plain = Table(title="t", columns=("a",), rows=((1,),), charts=(Bar(),))
    assert plain.to_markdown() == Table(title="t", columns=("a",), rows=((1,),)).to_markdown()


CLAIMS = (
    Claim("It helps.", "yes"),
    Claim.counted("It is fast.", 1, 3),
    Claim.shown("It is new.", False),
)


def test_claims_go_there_and_back() -> None:
    own = Table(title="t", columns=("a",), rows=((1,),), claims=CLAIMS)
    data = json.loads(json.dumps(own.to_dict()))
    assert Table.from_dict(data) == own
    del data["claims"]  # as older versions wrote it
    assert Table.from_dict(data).claims == ()


def test_claims_come_before_notes_in_words() -> None:
    own = Table(title="t", columns=("a",), rows=((1,),), notes=("n",), claims=CLAIMS)
    lines = [
        "Holds: It helps.",
        "Direction only: It is fast (shown in 1 of 3).",
        "Not shown: It is new.",
    ]
    assert str(own).splitlines()[-4:] == [f"· {line}" for line in [*lines, "n"]]
    assert own.to_markdown().splitlines()[-4:] == [f"- {line}" for line in [*lines, "n"]]


@pytest.mark.parametrize(("right", "held"), [(0, "no"), (1, "direction"), (2, "yes")])
def test_a_claim_about_several_settings(right: int, held: str) -> None:
    assert Claim.counted("So it is.", right, 2).held == held
