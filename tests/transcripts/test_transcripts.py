"""Whole conversations, reviewable as text, each run through both variants.

``XDS_REWRITE_TRANSCRIPTS=1`` writes what was seen into the files instead; review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.conversation import Conversation, parse
from xds.protocol.dialect import Variant

FILES = sorted(Path(__file__).parent.glob("*.txt"))
REWRITE = bool(os.environ.get("XDS_REWRITE_TRANSCRIPTS"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = parse(path.read_text())
    for block in transcript.blocks:
        block.expected = {}
    for variant in transcript.variants:
        conversation = Conversation(variant)
        for block in transcript.blocks:
            block.expected[variant] = conversation.run(block.commands)
    seen = transcript.render()
    if REWRITE:
        path.write_text(seen)
    assert seen == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 8


def test_both_forms_of_answers_are_read() -> None:
    text = "# About.\nvariants: sotw delta\n\npush clusters a=1\n---- sotw\none\n---- delta\nother\n"
    transcript = parse(text)
    assert transcript.blocks[0].expected == {Variant.SOTW: ["one"], Variant.DELTA: ["other"]}
    assert transcript.render() == text
