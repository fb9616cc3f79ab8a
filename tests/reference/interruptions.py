"""Limits and interruptions that come at the same moment on every machine."""

import os
import signal

from maxmargin.solvers import Callback


class Ticks:
    """A clock that moves on by one whenever it is read; put it in the place of `jit.clock`."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def ctrl_c(n_passes):
    """A monitor that sends this process what Ctrl-C sends, at the first report from that pass on."""
    sent = []

    def watch(report):
        if report.n_passes >= n_passes and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return True

    return Callback(watch)
