"""Whatever goes wrong in a command, the user gets one sentence and a fitting exit code."""

import click
import pytest

from penstock.cli.failures import CommandFailed, exit_code_of
from penstock.client.errors import ClientError
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
    assert "fault in Penstock: KeyError" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "1")
    with pytest.raises(KeyError):
        exit_code_of(KeyError("x"))
