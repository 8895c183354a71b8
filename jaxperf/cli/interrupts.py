"""Ctrl-C and SIGTERM wherever they arrive: none is lost, and none ends in a traceback."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

EXIT_INTERRUPTED = 130  # by Ctrl-C, 143 by SIGTERM; what was finished is kept
AGAIN = 0.02  # s until an interrupt that came at a bad moment is tried again


def no_more_to_say() -> None:
    """After standard error has failed: Python would try what is left of it once more at its end, and exit with 120."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115


@contextmanager
def interruptible() -> Iterator[None]:
    """A program that Ctrl-C ends with exit code 130, and SIGTERM the same way with 143.

    Three moments are waited for to pass: an import, in which modules in C make any other exception of it, or crash; a
    callback of the garbage collector, of which JAX has one that runs often, where Python drops all exceptions; and the
    evaluation of a text, after which Python 3.11 ends by the signal though it was caught. What Python drops elsewhere,
    in a `__del__` or the callback of a weak reference, is raised again.
    """
    code = EXIT_INTERRUPTED

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal code
        code = 128 + number
        if not _is_bad_moment(frame):
            raise KeyboardInterrupt
        _press_again(number)

    usual_hook = sys.unraisablehook

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _press_again(code - 128)
        else:
            usual_hook(what)

    if threading.current_thread() is threading.main_thread():  # no other may say what a signal does
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) is usual:  # not where it is ignored, as under nohup
                signal.signal(number, press)
        sys.unraisablehook = dropped
    try:
        yield
    except KeyboardInterrupt:
        try:
            print("\njaxperf: Interrupted.", file=sys.stderr)
        except OSError:
            no_more_to_say()
        sys.exit(code)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:  # the commands say so of either signal
            sys.exit(code)
        raise


def _press_again(number: int) -> None:
    again = threading.Timer(AGAIN, _thread.interrupt_main, (number,))
    again.daemon = True
    with suppress(RuntimeError):  # no thread starts where the interpreter is ending, which is what was asked for
        again.start()


def _is_bad_moment(frame: FrameType | None) -> bool:
    callbacks = [getattr(each, "__code__", None) for each in gc.callbacks]
    while frame is not None:
        file, outer = frame.f_code.co_filename, frame.f_back
        evaluated = file == "<string>" and outer is not None  # what `python -c` runs is a text too, the outermost
        if frame.f_code in callbacks or evaluated or file.startswith("<frozen importlib"):
            return True
        frame = outer
    return False
