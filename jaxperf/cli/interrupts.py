"""Ctrl-C and SIGTERM wherever they arrive: none is lost, and none ends in a traceback."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
import time
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

    Four moments are waited for to pass: an import, in which modules in C make any other exception of it, or crash; a
    callback of the garbage collector, of which JAX has one that runs often, where Python drops all exceptions; the
    evaluation of a text, after which Python 3.11 ends by the signal though it was caught; and the start of the next
    try, which may be in such a callback or lie in Python's report of what it dropped. What Python drops elsewhere, in a
    `__del__` or the callback of a weak reference, is raised again.
    """
    code, again = EXIT_INTERRUPTED, _Again()

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal code
        code = 128 + number
        if _is_bad_moment(frame):
            return again.start(number)
        again.stop()
        raise KeyboardInterrupt

    usual_hook = sys.unraisablehook

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            again.start(code - 128)
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
    finally:
        again.stop()


class _Again:
    """Sends the main thread a signal again and again, until it has come at a good moment."""

    def __init__(self) -> None:
        self._number: int | None = None

    def start(self, number: int) -> None:
        waiting, self._number = self._number is not None, number
        if not waiting:
            with suppress(
                RuntimeError
            ):  # no thread starts where the interpreter is ending, which is what was asked for
                threading.Thread(target=self._repeat, daemon=True).start()

    def stop(self) -> None:
        self._number = None  # no lock, which what interrupts its holder would wait for

    def _repeat(self) -> None:
        time.sleep(AGAIN)
        while (number := self._number) is not None:
            _interrupt(number)
            time.sleep(AGAIN)


def _interrupt(number: int) -> None:
    """The signal to the main thread, whose wait it ends; what Python does alone, where a system knows no such signal,
    ends none and is noticed after it."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


def _is_bad_moment(frame: FrameType | None) -> bool:
    callbacks = [_Again.start.__code__, *(getattr(each, "__code__", None) for each in gc.callbacks)]
    while frame is not None:
        file, outer = frame.f_code.co_filename, frame.f_back
        evaluated = file == "<string>" and outer is not None  # what `python -c` runs is a text too, the outermost
        if frame.f_code in callbacks or evaluated or file.startswith("<frozen importlib"):
            return True
        frame = outer
    return False
