"""pypjrt from PyPI as a judge of a PJRT plugin: its conformance harness, entry by entry.

    python pypjrt_judge.py PLUGIN.so

One line a check; what the plugin does not offer is listed as unsupported and is no failure. Then
this script's own checks through pypjrt's client, for what its harness leaves out. Last a line
"N passed, N failed"; exit code 0 if nothing failed.
"""

import array
import sys
import traceback

from pypjrt import conform, errors
from pypjrt._loader import Plugin
from pypjrt.client import Client

F32 = 11
ADD = """
module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
# An argument of the wrong size, a program of the wrong kind: each must be an error, not a crash.
BAD_PROGRAMS = {
    "not MLIR": "this is not a program",
    "no main": "module { func.func @other() { return } }",
    "wrong types": ADD.replace("tensor<4xf32> {", "tensor<5xf32> {"),
    "unknown op": ADD.replace("stablehlo.add", "stablehlo.frobnicate"),
    "unknown custom call": """
module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @nobody_registered_this(%a) {api_version = 4 : i32}
      : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> } }""",
    "cut bytecode": b"ML\xefR\rStableHLO_v1.0.0",
}


def must_fail(name, call, *, kinds=errors.PjrtError):
    try:
        call()
    except kinds:
        return
    raise AssertionError(f"{name}: no error")


def bad_programs(client):
    for name, text in BAD_PROGRAMS.items():
        must_fail(name, lambda text=text: client.compile(text))


def bad_options(plugin):
    must_fail("unknown option", lambda: Client(plugin, options={"no_such_option": 1}),
              kinds=errors.InvalidArgument)
    must_fail("mistyped option", lambda: Client(plugin, options={"cpu_device_count": "four"}),
              kinds=errors.InvalidArgument)
    must_fail("no devices", lambda: Client(plugin, options={"cpu_device_count": 0}),
              kinds=errors.InvalidArgument)


def bad_arguments(client, device):
    executable = client.compile(ADD)
    four = client.buffer_from_host(array.array("f", range(4)), F32, [4], device)
    eight = client.buffer_from_host(array.array("f", range(8)), F32, [8], device)
    square = client.buffer_from_host(array.array("f", range(4)), F32, [2, 2], device)
    must_fail("one argument of two", lambda: executable(four), kinds=errors.InvalidArgument)
    must_fail("too large", lambda: executable(four, eight), kinds=errors.InvalidArgument)
    must_fail("same bytes, other shape", lambda: executable(four, square),
              kinds=errors.InvalidArgument)
    (out,) = executable(four, four)
    assert list(array.array("f", out.to_host())) == [0, 2, 4, 6]
    for thing in (out, square, eight, four, executable):
        thing.close()


def bad_executables(client):
    executable = client.compile(ADD)
    blob = executable.serialize()
    must_fail("cut short", lambda: client.deserialize_executable(blob[:-1]))
    flipped = bytearray(blob)
    flipped[len(blob) // 2] ^= 1
    must_fail("one bit flipped", lambda: client.deserialize_executable(bytes(flipped)))
    must_fail("empty", lambda: client.deserialize_executable(b""))
    client.deserialize_executable(blob).close()
    executable.close()


def repeated_use(client, device):
    """A thousand executions must not make the process grow."""
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    executable = client.compile(ADD)

    def turn():
        a = client.buffer_from_host(array.array("f", range(4)), F32, [4], device)
        (out,) = executable(a, a)
        out.to_host()
        out.close()
        a.close()

    for _ in range(200):
        turn()
    before = resident()
    for _ in range(1000):
        turn()
    grown = resident() - before
    executable.close()
    assert grown < 4 << 20, f"the process grew by {grown} bytes"


def run_own(function, arguments):
    try:
        function(*arguments)
    except Exception:  # noqa: BLE001
        print(f"FAIL        own.{function.__name__}: {traceback.format_exc()}")
        return False
    print(f"pass        own.{function.__name__}")
    return True


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: pypjrt_judge.py PLUGIN.so")
    passed = failed = 0
    plugin = Plugin(sys.argv[1])
    report = conform.run(plugin, None)
    for result in report.checks:
        verdict = result.result.value
        passed += verdict == "pass"
        failed += verdict == "fail"
        print(f"{'FAIL' if verdict == 'fail' else verdict:<12}{result.id}: {result.detail}")
    client = Client(plugin)
    own = [(bad_options, plugin), (bad_programs, client), (bad_executables, client)]
    with client.device() as device:
        own += [(bad_arguments, client, device), (repeated_use, client, device)]
        for function, *arguments in own:
            verdict = run_own(function, arguments)
            passed += verdict
            failed += not verdict
    client.close()
    missing = [c.id for c in report.checks if c.result.value == "unsupported"]
    print(f"unsupported by the plugin ({len(missing)}): {', '.join(missing) or 'nothing'}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
