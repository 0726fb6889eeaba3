from __future__ import annotations

import pytest

from smartlinkd.sandbox.graphql import MAX_DEPTH, MAX_TOKENS, Malformed, argument, parse, pick


def test_an_operation_with_variables() -> None:
    document = parse("query q($a: [P!], $b: S! = X) { f(x: $a, y: {z: [$b, 1, -2.5]}) { g h: i } }")

    (field,) = document.selected
    assert (document.kind, document.name) == ("query", "q")
    assert document.variables == {"a": "[P!]", "b": "S!"}
    assert argument(field, "y", {"b": "B"}) == {"z": ["B", 1, -2.5]}
    assert [(sub.key, sub.name) for sub in field.selected] == [("g", "g"), ("h", "i")]


def test_a_document_without_a_name_is_a_query() -> None:
    document = parse(
        '{productOfferV2(itemId:7,keyword:"a\\"\\u00e9",on:true,no:null){nodes{name}}}'
    )

    (field,) = document.selected
    assert document.kind == "query"
    assert field.arguments == {"itemId": 7, "keyword": 'a"é', "on": True, "no": None}


def test_commas_and_comments_are_blank() -> None:
    (field,) = parse("{ # all of it\n a, b }").selected[:1]

    assert field.name == "a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "{a}}",
        "{a(}",
        "{a(b:)}",
        "{a {}}",
        "subscription {a}",
        "query ($x) {a}",
        "{...all}",
        "{a @skip(if: true)}",
        '{a(b: """block""")}',
        '{a(b: "open)}',
        "{a(b: 1x)}",
        "{a ~}",
        "{" * (MAX_DEPTH + 5),
        "{a" + " a" * MAX_TOKENS + "}",
        "{a(b: " + "[" * 50,
        "{" + "#" * 5000 + "\n^",
    ],
)
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_only_what_is_selected_is_answered() -> None:
    selected = parse("{ rows { short: shortLink } }").selected

    assert pick(selected, {"rows": [{"shortLink": "s", "longLink": "l"}, None]}) == {
        "rows": [{"short": "s"}, None]
    }


@pytest.mark.parametrize("query", ["{rows {nonesuch}}", "{rows}", "{rows {a {b}}}"])
def test_a_selection_that_does_not_fit(query: str) -> None:
    with pytest.raises(Malformed):
        pick(parse(query).selected, {"rows": [{"a": 1}]})
