"""Runs of the command line, in this process or in one of its own."""

import signal
import subprocess
import sys

from shoal import cli


def run(capsys, *args):
    """Run a command in this process; return exit status, stdout and stderr."""
    try:
        status = cli.main([str(arg) for arg in args])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


def failure(capsys, *args, status=1):
    """Run a command that must fail without output; return its message, which is one line."""
    found, out, err = run(capsys, *args)
    assert (found, out) == (status, "")
    last = err.splitlines()[-1]
    if status == 1:
        assert err == last + "\n"
        assert last.startswith("shoal: error: ")
    return last


def interrupted(folder, *args):
    """Run a command in a folder, press Ctrl-C at its first line of progress; return what stderr says then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *args], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    # The work has begun some time ago.
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert out == b""
    return err


def program(*args, **kwargs):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "shoal", *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        **kwargs,
    )
