"""``python -m astraeus_controller.rules_docs``: the numbers of docs/rules.md and the man page astraeus-rules(7), out of
the table of limits."""

from __future__ import annotations

from pathlib import Path

from .rules.limits import TABLE, markdown

MARK = "<!-- limits -->\n"
PAGE, MAN = Path("docs/rules.md"), Path("packaging/man/astraeus-rules.7")

HEAD = r""".TH ASTRAEUS\-RULES 7 "" "Astraeus for Slurm" "Miscellaneous"
.SH NAME
astraeus\-rules \- the numbers by which Astraeus judges jobs
.SH DESCRIPTION
A job that runs and does nothing is found by written rules, which are pure functions of what the nodes report. Each
number that a rule uses is a named default in one table, of which this page and docs/rules.md are made; the rules
themselves stand there.
What a run or a site may set (its patience, its straggler ratio, the warm\-up) is in
.BR sbatch (1)\(aqs
options and in /etc/astraeus/astraeus.toml.
.SH NUMBERS
"""
FOOT = r""".SH FILES
.TP
.I /etc/astraeus/astraeus.toml
defaults, limits and policy of the site
.SH SEE ALSO
.BR sbatch (1),
.BR scontrol (1)
"""


def man() -> str:
    """The man page, in roff."""
    return HEAD + "".join(
        f".TP\n.BR {_roff(row.name)} \" = {_roff(f'{row.value:g} {row.unit}')}\"\n"
        f"{_roff(_sentence(row.words))}\n.br\nWhy: {_roff(row.why)}.\n" for row in TABLE) + FOOT


def rules_page(text: str) -> str:
    """docs/rules.md with the table as it is now."""
    return text.split(MARK)[0] + MARK + markdown()


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def _roff(text: str) -> str:
    """Plain text in roff: no character of it is a command."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace('"', r"\(dq")
    return r"\&" + text if text.startswith(".") else text


if __name__ == "__main__":
    PAGE.write_text(rules_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    MAN.parent.mkdir(parents=True, exist_ok=True)
    MAN.write_text(man(), encoding="utf-8")
