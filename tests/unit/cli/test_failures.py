"""Whatever goes wrong in a command, the user gets one sentence and a fitting exit code."""

import click
import pytest

from penstock.cli.failures import CommandFailed, attempt_each, exit_code_of, fail_together
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.config import SettingsError
from penstock.model.errors import StartRefused


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ClientError("No broker."), 1, "penstock: No broker.\n"),
        (CommandFailed("It failed."), 1, "penstock: It failed.\n"),
        (StartRefused("In use."), 1, "penstock: In use.\n"),
        (SettingsError("Bad value."), 2, "penstock: Bad value.\n"),
        (
            click.UsageError("No such option."),
            2,
            "penstock: No such option (see penstock --help).\n",
        ),
        (
            click.UsageError("'a:x' is not TOPIC or TOPIC:PARTITION,..."),
            2,
            "penstock: 'a:x' is not TOPIC or TOPIC:PARTITION,... (see penstock --help).\n",
        ),
        (click.Abort(), 130, ""),
        (KeyboardInterrupt(), 130, ""),
        (PermissionError(13, "Permission denied", "/x"), 1, "penstock: /x: permission denied.\n"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == code
    assert capsys.readouterr().err == sentence


def test_a_fault_of_ours_is_called_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_TRACEBACK", raising=False)
    assert exit_code_of(KeyError("x")) == 1
    assert "bug in Penstock: KeyError" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "1")
    with pytest.raises(KeyError):
        exit_code_of(KeyError("x"))


def test_one_of_several_that_fails_does_not_stop_the_rest() -> None:
    def act(name: str) -> str:
        if name.startswith("bad"):
            raise ClientError(f"{name} is bad.")
        return name.upper()

    outcomes = attempt_each(["a", "bad 1", "b", "bad 2"], act)
    assert [one.result for one in outcomes] == ["A", None, "B", None]
    with pytest.raises(CommandFailed, match=r"^bad 1 is bad\. bad 2 is bad\.$"):
        fail_together(outcomes)
    fail_together(outcomes[:1])


def test_when_nobody_answers_the_rest_is_not_tried() -> None:
    tried = []

    def act(name: str) -> None:
        tried.append(name)
        raise BrokerUnreachable("Nobody answers.")

    assert len(attempt_each(["a", "b"], act)) == 1
    assert tried == ["a"]
