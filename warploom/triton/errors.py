"""triton.errors, triton.runtime.errors and triton.compiler.errors: which errors here they are."""

from warploom.errors import CompileError as CompilationError
from warploom.errors import InternalError as InterpreterError
from warploom.errors import LaunchError as OutOfResources
from warploom.errors import WarploomError as TritonError

AutotunerError = TritonError
PTXASError = CompilationError
CompileTimeAssertionFailure = UnsupportedLanguageConstruct = CompilationError

__all__ = [
    "AutotunerError",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "InterpreterError",
    "OutOfResources",
    "PTXASError",
    "TritonError",
    "UnsupportedLanguageConstruct",
]
