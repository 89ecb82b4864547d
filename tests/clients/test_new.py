import instructor
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
