"""The explorer's JSON API, and the page that uses it. Every input is bounded; nothing is written unless allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import resources
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Body, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

import fedlu
from fedlu.errors import FedluError, UnavailableError
from fedlu.explorer import answers, forgetting
from fedlu.explorer.batching import Batcher
from fedlu.explorer.safety import App, Guard, Receive, Scope, Send
from fedlu.results.charts import entity_map as map_chart
from fedlu.results.maps import entity_map
from fedlu.results.prediction import LearnedRun
from fedlu.results.runs import read_metrics

PAGES = {
    "/": ("explore.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
    "/explore.css": ("explore.css", "text/css; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/explore.js": ("explore.js", "text/javascript; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}

Label = Annotated[str, Query(min_length=1, max_length=2000)]
MaybeLabel = Annotated[str | None, Query(min_length=1, max_length=2000)]
Limit = Annotated[int, Query(ge=1, le=200)]


class Explorer:
    """What the server looks at: a run, which forgetting replaces by the one that has forgotten."""

    def __init__(self, run: LearnedRun, *, allow_forget: bool = False, forget: forgetting.Forget | None = None) -> None:
        self.run, self.allow_forget, self.forget = run, allow_forget, forget
        self.batcher = Batcher(run)
        self.job: forgetting.Forgetting | None = None
        self.working: asyncio.Task[None] | None = None
        self.names: dict[str, answers.Names] = {}
        self.quality: dict[str, list[dict[str, Any]]] = {}
        self.map: dict[str, Any] | None = None
        self.mapping = asyncio.Lock()

    def look_at(self, run: LearnedRun) -> None:
        self.run, self.batcher = run, Batcher(run)
        self.names, self.quality, self.map = {}, {}, None


def app_of(explorer: Explorer, *, host: str = "127.0.0.1", token: str | None = None) -> Guard:
    """The whole application, guarded."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        explorer.batcher.close()

    about = "Ask a finished run of fedlu for predictions, evidence and quality; labels in, labels out."
    app = FastAPI(
        title="fedlu explore",
        description=about,
        version=fedlu.__version__,
        docs_url=None,  # they would load scripts from elsewhere; our /docs shows the same
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=life,
    )
    for path, (name, kind) in PAGES.items():
        _serve_page(app, path, name, kind)
    app.add_exception_handler(FedluError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    _add_questions(app, explorer)
    _add_looks(app, explorer)
    _add_forgetting(app, explorer)
    return Guard(Shortcut(app, explorer), host=host, token=token)


class Shortcut:
    """Predictions without the framework, which takes longer than the prediction: the same answer to a plain question.

    Whatever is unusual, wrong or unknown about a request is left to the framework, which explains.
    """

    def __init__(self, app: App, explorer: Explorer) -> None:
        self.app, self.explorer = app, explorer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/api/predict" and scope["method"] == "GET":
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            query = dict(pairs)
            question = answers.asked_plainly(self.explorer.run, query) if len(query) == len(pairs) else None
            if question is not None:
                with suppress(FedluError):  # told below
                    body = await self.explorer.batcher.ask(question)
                    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    await send({"type": "http.response.body", "body": body})
                    return
        await self.app(scope, receive, send)


def _serve_page(app: FastAPI, path: str, name: str, kind: str) -> None:
    content = resources.files("fedlu").joinpath("pages", name).read_bytes()
    app.add_api_route(path, lambda: Response(content, media_type=kind), include_in_schema=False)


async def _refused(_: Request, refusal: Exception) -> JSONResponse:
    assert isinstance(refusal, FedluError)
    status = 503 if isinstance(refusal, UnavailableError) else 400
    return JSONResponse({"error": str(refusal), "remedy": refusal.remedy}, status_code=status)


async def _invalid(_: Request, trouble: Exception) -> JSONResponse:
    assert isinstance(trouble, RequestValidationError)
    first = trouble.errors()[0]
    return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, status_code=422)


def _json(value: Any) -> Response:
    """What we made ourselves needs no second check."""
    return Response(json.dumps(value, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


# --- questions ----------------------------------------------------------------------------------------------------


def _add_questions(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/predict", summary="The likeliest tails of a head, or heads of a tail, by every view")
    async def predict(
        client: Label,
        relation: Label,
        head: MaybeLabel = None,
        tail: MaybeLabel = None,
        top: Annotated[int, Query(ge=1, le=answers.MOST_ANSWERS)] = 10,
        new_only: bool = False,
    ) -> Response:
        question = answers.asked(explorer.run, client, relation, head, tail, top, new_only)
        return Response(await explorer.batcher.ask(question), media_type="application/json")

    @app.get("/api/rank", summary="Where each view ranks the two ends of a triple, other known answers left out")
    async def rank(client: Label, head: Label, relation: Label, tail: Label) -> Response:
        found = await explorer.batcher.work(answers.rank_of, explorer.run, client, head, relation, tail)
        return _json(found)

    @app.get("/api/evidence", summary="Known triples that may speak for a prediction")
    async def evidence(client: Label, head: Label, relation: Label, tail: Label, limit: Limit = 5) -> Response:
        found = await explorer.batcher.work(answers.evidence, explorer.run, client, head, relation, tail, limit)
        return _json(found)


# --- a look around ------------------------------------------------------------------------------------------------


def _add_looks(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/run", summary="What is explored")
    async def about() -> Response:
        run = explorer.run
        metrics = read_metrics(run.folder)
        return _json(
            {
                "run": run.folder.resolve().name,
                "method": run.settings.method,
                "model": run.settings.model,
                "federation": run.federation.name,
                "views": run.views,
                "clients": answers.clients(run),
                "test": {view: found["weighted"] for view, found in metrics.get("test", {}).items()},
                "allow_forget": explorer.allow_forget,
                "fedlu": fedlu.__version__,
            }
        )

    @app.get("/api/entities", summary="Entities by a part of their names")
    async def entities(client: Label, q: Annotated[str, Query(max_length=200)] = "", limit: Limit = 10) -> Response:
        if client not in explorer.names:
            explorer.names[client] = answers.names_of(explorer.run.desk(client))
        return _json(answers.find_entities(explorer.names[client], q, limit))

    @app.get("/api/relations", summary="The relations of a client")
    async def relations(client: Label) -> Response:
        return _json(answers.relations(explorer.run, client))

    @app.get("/api/neighbours", summary="What is known of an entity, and the entities that are most like it")
    async def neighbours(client: Label, entity: Label, limit: Limit = 50) -> Response:
        return _json(await explorer.batcher.work(answers.neighbours, explorer.run, client, entity, limit))

    @app.get("/api/quality", summary="How well each relation's test triples are ranked")
    async def quality(client: Label) -> Response:
        if client not in explorer.quality:
            run, batcher = explorer.run, explorer.batcher
            numbers = range(len(run.desk(client).graph.vocabulary.relations))
            found = [await batcher.work(answers.quality_of, run, client, n) for n in numbers]  # others' turns between
            explorer.quality[client] = [each for each in found if each is not None]
        return _json(explorer.quality[client])

    @app.get("/api/map", summary="The entities in the plane; what lies together has like rows")
    async def entities_in_the_plane() -> Response:
        async with explorer.mapping:
            if explorer.map is None:
                found = await asyncio.to_thread(entity_map, explorer.run)  # a minute, the first time
                chart = map_chart(found, explorer.run.folder.name, names=True)
                explorer.map = {"spec": chart.spec, "text": chart.text}
        return _json(explorer.map)


# --- forgetting ---------------------------------------------------------------------------------------------------


def _add_forgetting(app: FastAPI, explorer: Explorer) -> None:
    @app.post("/api/forget", summary="Forget triples (only with --allow-forget); the run is left as it is")
    async def forget(
        client: Annotated[str, Body(max_length=2000)],
        triples: Annotated[list[tuple[str, str, str]], Body(max_length=forgetting.MOST_TRIPLES)],
    ) -> JSONResponse:
        if not explorer.allow_forget:
            return JSONResponse({"error": "read-only; start with `fedlu explore --allow-forget`"}, status_code=403)
        if explorer.working is not None and not explorer.working.done():
            return JSONResponse({"error": "something is being forgotten; wait for it"}, status_code=409)
        run = explorer.run
        job = await explorer.batcher.work(forgetting.request, run, client, triples)
        explorer.job = job

        async def work() -> None:
            await asyncio.to_thread(forgetting.carry_out, job, run, explorer.forget)
            if job.run is not None:
                explorer.look_at(job.run)

        explorer.working = asyncio.create_task(work())
        return JSONResponse(job.told(), status_code=202)

    @app.get("/api/forget", summary="How the last request to forget is going, and the ranks before and after")
    async def progress() -> Response:
        return _json(None if explorer.job is None else explorer.job.told())
