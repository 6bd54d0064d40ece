"""Statements of SQL as jobs: where the query ends, and what is said of its rows."""

import duckdb
import pytest

from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.model_source import check_model
from elastic_run.adapters.models.statements import Statement, read_program, write_model
from elastic_run.adapters.models.zoo_files import list_names


def test_a_program_is_read_as_statements() -> None:
    text = """
        -- ; TO TRAIN nothing;
        SELECT 'é; TO TRAIN x' AS "to", (SELECT 1 /* ; */) FROM 'a b.csv' WHERE x = $$;$$ To Train deepfm
            WITH epochs=2, batch_size = 64, validate='t*.csv' LABEL "my label" INTO 'a folder';
        FROM clicks SELECT x TO EVALUATE model;;
        SELECT 1 TO PREDICT outputs WITH bad=0.5 USING model -- the end
    """
    first, second, third = read_program(text, duckdb.tokenize)
    assert first == Statement(
        """SELECT 'é; TO TRAIN x' AS "to", (SELECT 1 /* ; */) FROM 'a b.csv' WHERE x = $$;$$""",
        "train",
        "deepfm",
        "my label",
        "a folder",
        ("--epochs=2", "--batch-size=64", "--validate=t*.csv"),
    )
    assert second == Statement("FROM clicks SELECT x", "evaluate", "model")
    assert third == Statement("SELECT 1", "predict", "model", "", "outputs", ("--bad=0.5",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no statement"),
        ("SELECT 1", "says not what becomes of its rows"),
        ("TO TRAIN deepfm LABEL x INTO m", "follows no SELECT"),
        ("SELECT 1 TO TRAIN", "what is missing"),
        ("SELECT 1 TO TRAIN none LABEL x INTO m", "there is no model 'none'"),
        ("SELECT 1 TO TRAIN deepfm INTO m", "LABEL is missing"),
        ("SELECT 1 TO TRAIN deepfm LABEL x", "INTO is missing"),
        ("SELECT 1 TO TRAIN 'a.py' LABEL x INTO m", "says itself what it learns"),
        ("SELECT 1 TO TRAIN deepfm LABEL x INTO m NOW", "'NOW' is not understood"),
        ("SELECT 1 TO TRAIN deepfm WITH epochs LABEL x INTO m", "WITH epochs has no value"),
        ("SELECT 1 TO PREDICT a.csv USING m", "'.' is not understood"),
        ("SELECT (1 TO EVALUATE m", "says not what becomes"),
    ],
)
def test_what_is_no_statement_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(BadModel, match=why):
        read_program(text, duckdb.tokenize)


@pytest.mark.parametrize("name", list_names())
def test_each_model_of_the_zoo_can_learn_any_column(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(source := write_model(name, 'my "label"'))
    check_model(str(path))
    assert 'features = "auto"' in source and "label = 'my \"label\"'" in source
