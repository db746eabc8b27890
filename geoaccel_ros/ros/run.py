"""The main of every node: start, spin, and stop so that the robot is left safe."""

import signal
import sys
import threading
import traceback

import rclpy
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

from geoaccel_ros.config import ConfigurationError
from geoaccel_ros.memory import keep_freed_memory
from geoaccel_ros.ros.node import ManagedNode
from geoaccel_ros.ros.params_file import check_parameter_files

# How long a signal may wait for the executor to come back from an idle wait.
_POLL_S = 0.1


class _Interrupted(BaseException):
    """A signal that came while a transition was working; passes every ``except Exception``."""


def run(node_type: type[ManagedNode], arguments: list[str] | None = None) -> int:
    """Run one node until SIGINT or SIGTERM.

    Returns
    -------
    int
        The exit status: 0 after a signal, 1 when the node could not start or failed.
    """
    arguments = sys.argv if arguments is None else arguments
    keep_freed_memory()
    try:
        check_parameter_files(arguments, node_type.NAME)
        # With rclpy's own handlers the context is gone before on_shutdown can publish anything.
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except ConfigurationError as error:
        return _complain(node_type, error)
    except Exception as error:  # rcl raises its own types for arguments it cannot parse
        return _complain(node_type, f"cannot start: {str(error).splitlines()[0]}")
    try:
        with _Signals() as signals:
            node = node_type()
            return _live(node, signals)
    except (ConfigurationError, ParameterException) as error:
        return _complain(node_type, error)
    except _Interrupted:
        return 0
    finally:
        rclpy.try_shutdown()


def _live(node: ManagedNode, signals: "_Signals") -> int:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    node.working = signals.interrupting
    try:
        if node.get_parameter("autostart").value and not _start(node):
            return 1
        _spin(executor, signals)
        return 0
    except Exception:
        node.get_logger().fatal(f"the node failed: {traceback.format_exc()}")
        return 1
    finally:
        _stop(node)
        executor.shutdown()
        node.destroy_node()


def _start(node: ManagedNode) -> bool:
    transitions = (node.trigger_configure, node.trigger_activate)
    return all(transition() == TransitionCallbackReturn.SUCCESS for transition in transitions)


def _spin(executor: SingleThreadedExecutor, signals: "_Signals") -> None:
    try:
        while not signals.received:
            executor.spin_once(timeout_sec=_POLL_S)
    except ExternalShutdownException:
        pass


def _stop(node: ManagedNode) -> None:
    # A transition that a signal cut short leaves no state from which shutdown is possible.
    state = node._state_machine.current_state[1]
    if state in ("unconfigured", "inactive", "active"):
        node.trigger_shutdown()
    else:
        node.abandon()


def _complain(node_type: type[ManagedNode], problem: object) -> int:
    print(f"{node_type.NAME}: {problem}", file=sys.stderr)
    return 1


class _Signals:
    """SIGINT and SIGTERM as a flag, or as an exception where a transition works for seconds."""

    def __init__(self):
        self.received = False
        self._interrupt = False

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        else:
            self._previous = {}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def interrupting(self) -> "_Interrupting":
        """Return a context in which a signal raises instead of waiting for the spin loop."""
        return _Interrupting(self)

    def _handle(self, number: int, frame) -> None:
        self.received = True
        if self._interrupt:
            self._interrupt = False
            raise _Interrupted


class _Interrupting:
    def __init__(self, signals: _Signals):
        self._signals = signals

    def __enter__(self) -> None:
        if self._signals.received:
            raise _Interrupted
        self._signals._interrupt = True

    def __exit__(self, *_) -> None:
        self._signals._interrupt = False
