"""The bodies of the crews' API, by the names that clients of deployed CrewAI crews use.

Requests come in camelCase and in snake_case (clients write both) and null counts as left out.
Answers are in snake_case, but for one field. What is not known yet is null.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    model_validator,
)

from smartlinkd.store.model import Status
from smartlinkd.wire import Body, In, Parameters, Timestamp, example

MAX_WAIT: Final = 60.0
"""Seconds that `?wait=` can hold an answer: proxies give up at about that."""
MAX_PAGE: Final = 100
MAX_KEY: Final = 255
"""Characters of an `Idempotency-Key`: nobody's are longer, and each is kept for a day."""
MAX_EVENT_TYPES: Final = 100
"""There are about as many types of events at CrewAI, of which ours are a part."""
MAX_CREDENTIAL: Final = 4096
"""Characters of a token or a password: with 8 KiB of headers most servers stop listening."""
MAX_EVENT_ID: Final = 2**53 - 1

_EXAMPLE_ID: Final = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"

State = Literal["PENDING", "RUNNING", "SUCCESS", "FAILED"]


# Beside the bodies


class InCrew(Parameters):
    """The parameter of every crew's address."""

    crew: Annotated[str, In("path"), Field(description="the crew's name", examples=["deal-post"])]


KickoffId = Annotated[
    str,
    In("path"),
    Field(
        description="what POST /kickoff returned",
        examples=[_EXAMPLE_ID],
        json_schema_extra={"format": "uuid"},
    ),
]


class OneExecution(Parameters):
    kickoff_id: KickoffId


class StatusAsked(Parameters):
    kickoff_id: KickoffId
    wait: Annotated[
        float,
        In("query"),
        Field(
            ge=0,
            description="seconds to wait for another `state`, when it has not ended; more than "
            f"{MAX_WAIT:g} counts as {MAX_WAIT:g}",
        ),
    ] = 0
    result: Annotated[
        Literal["text", "object"],
        In("query"),
        Field(description="whether `result` is the output alone, or an object with the tasks"),
    ] = "text"
    inputs: Annotated[
        Literal["0", "1"], In("query"), Field(description="1: the answer has `inputs`, too")
    ] = "0"


class EventsAsked(Parameters):
    kickoff_id: KickoffId
    last_event_id: Annotated[
        int,
        In("header"),
        Field(
            alias="Last-Event-ID",
            ge=0,
            le=MAX_EVENT_ID,
            description="the id of the last event that was seen: the stream goes on after it",
        ),
    ] = 0


class ExecutionsAsked(Parameters):
    state: Annotated[
        State | None,
        In("query"),
        Field(description="only those in this state"),
    ] = None
    limit: Annotated[
        int, In("query"), Field(ge=1, le=MAX_PAGE, description="how many at the most")
    ] = 20
    cursor: Annotated[
        str | None,
        In("query"),
        Field(description="the `next_cursor` of the answer before, for the next older ones"),
    ] = None


class KickoffAsked(Parameters):
    idempotency_key: Annotated[
        str | None,
        In("header"),
        Field(
            alias="Idempotency-Key",
            min_length=1,
            max_length=MAX_KEY,
            description="with the same key and body as in the last 24 hours, the kickoff_id of "
            "then is returned and nothing is started",
        ),
    ] = None


# Requests


def _plain_token(value: SecretStr) -> SecretStr:
    token = value.get_secret_value()
    if not (token.isascii() and token.isprintable()) or " " in token or not token:
        raise ValueError("must be printable ASCII without blanks, since it goes into a header")
    return value


def _user_name(value: str) -> str:
    # RFC 7617, section 2: the colon ends it, and control characters are out.
    if ":" in value or not value.isprintable():
        raise ValueError("must be printable and without a colon, since it goes into a header")
    return value


Token = Annotated[SecretStr, Field(max_length=MAX_CREDENTIAL), AfterValidator(_plain_token)]
UserName = Annotated[str, Field(max_length=MAX_CREDENTIAL), AfterValidator(_user_name)]
Url = Annotated[str, Field(description="https:// or http://, reachable from the daemon")]


class Authentication(Body):
    """`bearer` goes with a `token`, `basic` with `username` and `password`."""

    strategy: Literal["bearer", "basic"]
    token: Token | None = None
    username: UserName | None = None
    password: Annotated[SecretStr, Field(max_length=MAX_CREDENTIAL)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Authentication:
        if self.strategy == "bearer" and self.token is None:
            raise ValueError('needs `token` with the strategy "bearer"')
        if self.strategy == "basic" and (self.username is None or self.password is None):
            raise ValueError('needs `username` and `password` with the strategy "basic"')
        return self


class EventStreamTarget(Body):
    """An address to which events of some types are sent as they happen."""

    events: Annotated[
        list[Annotated[str, Field(max_length=200)]] | None,
        Field(max_length=MAX_EVENT_TYPES, description="the types that are wanted"),
    ] = None
    url: Url | None
    realtime: Annotated[
        bool | None, Field(description="accepted; every event is sent as it happens")
    ] = None
    authentication: Authentication | None = None

    @model_validator(mode="after")
    def _complete(self) -> EventStreamTarget:
        if self.url and self.events is None:
            raise ValueError("needs `events`, the list of the types that are wanted")
        return self


class HumanInputTarget(Body):
    """An address that is called when a task waits for a human."""

    url: Url | None
    authentication: Authentication | None = None


class Webhooks(Body):
    """Addresses to call during an execution. One that is null or empty is none."""

    task_webhook_url: Url | None = None
    step_webhook_url: Url | None = None
    crew_webhook_url: Url | None = None
    webhooks: EventStreamTarget | None = None
    human_input_webhook: HumanInputTarget | None = None


class _Inputs(Body):
    inputs: Annotated[
        dict[str, JsonValue] | None, Field(description="by name, any JSON value each")
    ] = None
    meta: Annotated[
        JsonValue,
        Field(
            description="yours: comes back in every status, and in webhook calls but a stream's; "
            "at most 64 KiB of JSON"
        ),
    ] = None


class KickoffRequest(Webhooks, _Inputs):  # the last one's fields come first
    model_config = example(
        {"inputs": {"links": ["https://shopee.vn/product/88201679/23456789012"]}}
    )


class _Feedback(Body):
    execution_id: Annotated[
        str,
        Field(
            validation_alias=AliasChoices("execution_id", "executionId"),
            description="the kickoff_id",
        ),
    ]
    task_id: Annotated[
        str,
        Field(
            validation_alias=AliasChoices("task_id", "taskId"),
            description="the `current_task` of the status",
        ),
    ]
    human_feedback: Annotated[
        str, Field(validation_alias=AliasChoices("human_feedback", "humanFeedback"))
    ]
    is_approve: Annotated[
        bool,
        Field(
            validation_alias=AliasChoices("is_approve", "isApprove"),
            description="true: go on; false: do the task again with the feedback",
        ),
    ]


class ResumeRequest(Webhooks, _Feedback):
    """A human's answer. Its own fields are documented in snake_case and taken in both."""

    model_config = example(
        {
            "execution_id": _EXAMPLE_ID,
            "task_id": "review",
            "human_feedback": "Shorter, please",
            "is_approve": False,
        }
    )


# Answers


class CrewFailure(BaseModel):
    """Every failure of the crews' API."""

    error: Annotated[str, Field(description="the kind of failure")]
    message: Annotated[str, Field(description="what is wrong and what to do")]
    details: Annotated[
        dict[str, JsonValue],
        Field(
            description="for programs, as in `missing_inputs`; left out when there is nothing",
            exclude_if=lambda details: not details,
        ),
    ] = {}


class Answer(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True, defer_build=True)


class InputsResponse(Answer):
    inputs: Annotated[list[str], Field(description="sorted")]


class KickoffResponse(Answer):
    kickoff_id: str


Seconds = Annotated[
    float | None, Field(description="seconds since its start, until its end when it has ended")
]


class Progress(Answer):
    completed_tasks: int
    total_tasks: Annotated[
        int,
        Field(
            description="as the worker told; else the tasks started so far. Never less than "
            "`completed_tasks`"
        ),
    ]


class ExecutedTask(Answer):
    name: str | None
    agent: str | None
    description: str | None
    output: str | None


class TaskResult(Answer):
    task_id: str
    name: str | None
    agent: str | None
    output: str | None
    execution_time: float | None


class ResultObject(Answer):
    """`result` when `?result=object` asks for it."""

    output: str
    tasks: list[TaskResult]


class ListedExecution(Answer):
    """An execution without what may be large."""

    kickoff_id: str
    state: State
    status: Annotated[Status, Field(description="what is the matter, in more detail than `state`")]
    error: str | None
    current_task: str | None
    progress: Progress
    execution_time: Seconds
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None


class StatusResponse(ListedExecution):
    """An execution, in the same shape whatever its state."""

    result: Annotated[
        str | ResultObject | None,
        Field(description="the output; when it failed, the error's text; null until then"),
    ]
    result_json: Annotated[JsonValue, Field(description="the result parsed, where it is an object")]
    last_executed_task: ExecutedTask | None
    last_step: JsonValue
    tasks: Annotated[list[TaskResult], Field(description="the completed ones")]
    meta: JsonValue
    inputs: Annotated[
        dict[str, JsonValue] | None,
        Field(
            description="what the kickoff brought; only with `?inputs=1`",
            exclude_if=lambda inputs: inputs is None,
        ),
    ] = None


class ExecutionsResponse(Answer):
    executions: list[ListedExecution]
    next_cursor: Annotated[str | None, Field(description="null: there are no older ones")]


class StopResponse(Answer):
    status: Literal["stopped"] = "stopped"
    kickoff_id: Annotated[str, Field(serialization_alias="kickoffId")]


class ResumeResponse(Answer):
    status: Literal["resumed", "retrying"]
    message: str
    kickoff_id: str
