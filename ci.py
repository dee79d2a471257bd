TEST = """
import pytest
import torch
import torch.nn.functional as F

from cutetut.course import notebooks

ship = notebooks.load("25_ship_it", ("imports", "kernel", "bench"))


@pytest.fixture
def tensors():
    rng = torch.Generator().manual_seed(0)
    shapes = (200, 96), (136, 96), (136,), (200, 136)
    return [torch.randn(*shape, generator=rng).bfloat16().cuda() for shape in shapes]


def assert_right(y, x, W, bias, residual):
    z = x.double() @ W.double().T + bias.double()
    wanted = F.gelu(z, approximate="tanh") + residual.double()
    torch.testing.assert_close(y.double(), wanted, atol=0.05, rtol=2**-7)


@pytest.mark.schedules(2)
def test_any_order_of_events(tensors):
    assert_right(ship.linear(*tensors, True), *tensors)


def test_on_a_stream_of_its_own(tensors):
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = ship.linear(*tensors, True)
    main.wait_stream(side)
    assert_right(y, *tensors)


def test_in_a_graph_with_new_numbers(tensors):
    ship.linear(*tensors, True)  # compiles; a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ship.linear(*tensors, True)
    tensors[0].copy_(tensors[0].flip(0))
    graph.replay()
    assert_right(y, *tensors)
"""


def run_tests(text: str) -> str:
    """The outcomes that pytest reports of a file of tests, by name."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_op.py").write_text(text)
        here = [] if cutetut.device == "cuda" else ["--emulate"]
        command = [sys.executable, "-m", "pytest", *here, "-rA", "-q", "-p", "no:cacheprovider", "test_op.py"]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUTETUT_BACKEND": ""},
        )
    return done.stdout + done.stderr

