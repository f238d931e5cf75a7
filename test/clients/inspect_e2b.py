"""inspect-sandboxes: an evaluation whose one sample runs in sandbox "e2b", with a model that is never asked."""

from inspect_ai import Task, eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox


@solver
def compute():
    async def solve(state, generate):
        result = await sandbox().exec(["python3", "-c", "print(6 * 7)"])
        assert result.success, result
        await sandbox().write_file("notes.txt", "kept")
        assert await sandbox().read_file("notes.txt") == "kept"
        state.output.completion = result.stdout.strip()
        return state
    return solve


@scorer(metrics=[])
def exact():
    async def score(state, target):
        return Score(value=state.output.completion == target.text)
    return score


log = evaluate(Task(dataset=[Sample(input="6 * 7", target="42")], solver=compute(), scorer=exact(), sandbox="e2b"),
               model="mockllm/model", display="none", log_dir="logs")[0]
assert log.status == "success", log.error.message if log.error else log.status
sample = log.samples[0]
assert not sample.error, sample.error.message
assert list(sample.scores.values())[0].value is True, sample.scores
