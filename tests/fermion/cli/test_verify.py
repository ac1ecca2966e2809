"""`fermion verify`: what is damaged, and its exit status."""

from __future__ import annotations

from tests.kit.command_line import output, printed_json


def test_verify_is_silent_about_nothing(capsys, sample, damaged):
    assert ": OK: 5 columns, " in output(capsys, "verify", sample)
    text = output(capsys, "verify", damaged, status=1)
    assert text.splitlines()[0] == f"{damaged}: 1 problem"
    assert "column 'id'" in text or "checksum" in text
    found = printed_json(capsys, "verify", damaged, status=1)
    assert (found["ok"], len(found["problems"])) == (False, 1)


def test_verify_of_what_is_no_fermion_file_is_a_problem_found(capsys, tmp_path):
    path = tmp_path / "x.fermion"
    path.write_bytes(b"something else" * 100)
    text = output(capsys, "verify", path, status=1)
    assert "expected magic" in text
