import json

import instructor
import jsonschema
import openai
import pytest
from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from conftest import NAME
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from pydantic_ai import Agent as TypedAgent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    name: str
    population: int


def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny"


def test_langchain(url):
    llm = ChatOpenAI(model=NAME, base_url=url, max_tokens=150, temperature=0)
    message = llm.bind_tools([tool(weather)], tool_choice="required", parallel_tool_calls=False).invoke("How is the weather in Rome?")
    assert message.tool_calls[0]["name"] == "weather" and list(message.tool_calls[0]["args"]) == ["city"]
    for method in ("json_schema", "function_calling"):
        assert isinstance(llm.with_structured_output(City, method=method).invoke("Paris has 2 million people."), City)
    assert "".join(chunk.text for chunk in llm.stream("Say hello."))
    vectors = OpenAIEmbeddings(model=NAME, base_url=url, check_embedding_ctx_length=False).embed_documents(["An owl.", "A bird."])
    assert len(vectors) == 2 and len(vectors[0]) == 576


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor(url, mode):
    client = instructor.from_openai(openai.OpenAI(base_url=url), mode=mode)
    messages = [{"role": "user", "content": "Paris has 2 million people."}]
    assert isinstance(client.chat.completions.create(model=NAME, response_model=City, messages=messages, max_tokens=200, max_retries=0), City)


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
def test_pydantic_ai(url, kind):
    model = kind(NAME, provider=OpenAIProvider(base_url=url))
    assert isinstance(TypedAgent(model, output_type=City, model_settings={"max_tokens": 200, "temperature": 0}).run_sync("Paris has 2 million people.").output, City)


def test_openai_agents(url):
    set_tracing_disabled(True)
    settings = ModelSettings(max_tokens=200, temperature=0, tool_choice="required", parallel_tool_calls=False)
    agent = Agent(name="tools", instructions="Use tools.", model=NAME, tools=[function_tool(weather)], model_settings=settings, tool_use_behavior="stop_on_first_tool")
    assert Runner.run_sync(agent, "How is the weather in Rome?").final_output == "sunny"
    typed = Agent(name="typed", model=NAME, output_type=City, model_settings=ModelSettings(max_tokens=200, temperature=0))
    assert isinstance(Runner.run_sync(typed, "Paris has 2 million people.").final_output, City)


# Fifty questions for five tools: whatever a small model means by them, its calls parse and satisfy their schemas.

def parameters(required=None, **properties):
    return {"type": "object", "properties": properties, "required": required or list(properties), "additionalProperties": False}


TEXT, DAY = {"type": "string", "maxLength": 24}, {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"}
FIVE = {
    "get_weather": parameters(["city"], city=TEXT, days={"type": "integer", "minimum": 1, "maximum": 14}, unit={"enum": ["celsius", "fahrenheit"]}),
    "send_mail": parameters(to={"type": "string", "format": "email", "maxLength": 40}, subject=TEXT, urgent={"type": "boolean"}),
    "search": parameters(query=TEXT, filters={"type": "array", "items": parameters(field={"enum": ["author", "year", "language"]}, value=TEXT), "maxItems": 2}),
    "book_table": parameters(people={"type": "integer", "minimum": 1, "maximum": 12}, day=DAY, where={"anyOf": [TEXT, {"type": "null"}]}),
    "convert": parameters(amount={"type": "number", "minimum": 0, "maximum": 1000000}, source={"type": "string", "pattern": "^[A-Z]{3}$"}, target={"type": "string", "pattern": "^[A-Z]{3}$"}),
}
QUESTIONS = [
    *(f"How will the weather be in {city}?" for city in ("Oslo", "Lima", "Nairobi", "Kyoto", "São Paulo", "Kraków", "New York", "Ulaanbaatar", "Perth", "Reykjavík")),
    *(f"Write to {who} that {what}." for who, what in zip(("Anna", "the team", "bob@example.org", "my landlord", "the press"), ("I am late", "we won", "the \"deal\" is off", "the sink leaks", "all is well"))),
    *(f"Mail {who}: {what}" for who, what in zip(("Eve", "ops@example.com", "Zoë", "support", "mum"), ("lunch?", "disk full!", "спасибо", "it \\ breaks", "happy birthday 🎂"))),
    *(f"Find books about {what}." for what in ("owls", "the sea", "C++", "Rome in 44 BC", "bread", "quantum mechanics", "cats & dogs", "日本語", "trains", "nothing at all")),
    *(f"A table for {n}, {when}, please." for n, when in zip((2, 4, 1, 12, 3, 6, 8, 5, 7, 10), ("tonight", "tomorrow", "on 2026-12-24", "next Friday", "at noon", "on Sunday", "in May", "this week", "by the window", "soon"))),
    *(f"How much is {x}?" for x in ("100 USD in EUR", "5 GBP in JPY", "1 BTC in USD", "20 CHF in SEK", "3.50 EUR in PLN", "0 INR in USD", "999999 KRW in EUR", "a lot", "12 CAD in AUD", "7 NOK in DKK")),
]


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls_of_fifty_questions(url, choice):
    tools = [{"type": "function", "function": {"name": name, "description": name.replace("_", " "), "parameters": schema, "strict": True}} for name, schema in FIVE.items()]
    client, called, names = openai.OpenAI(max_retries=0), 0, set()
    assert len(QUESTIONS) == 50
    for i, question in enumerate(QUESTIONS):
        fields = {"model": NAME, "messages": [{"role": "user", "content": question}], "tools": tools, "tool_choice": choice, "temperature": 0.8, "seed": i, "max_tokens": 300, "parallel_tool_calls": choice == "auto"}
        if i % 2 and choice == "required":
            with client.chat.completions.stream(**fields) as stream:
                answer = stream.get_final_completion().choices[0]
        else:
            answer = client.chat.completions.create(**fields).choices[0]
        calls = answer.message.tool_calls or []
        if answer.finish_reason == "length":  # the last one may not have come to its end
            calls = calls[:-1]
        assert choice == "auto" or (calls and answer.finish_reason == "tool_calls"), (question, answer)
        called += bool(answer.message.tool_calls)
        for call in calls:
            jsonschema.validate(json.loads(call.function.arguments), FIVE[call.function.name], format_checker=jsonschema.FormatChecker())
            names.add(call.function.name)
    print(f"\n{choice}: {called} of 50 questions answered with calls, of {sorted(names)}")
    assert choice == "auto" or len(names) >= 3
