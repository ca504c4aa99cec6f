"""Search in topics over the wire: query language, decoders, ranges, scan of raw batches, order and report.

Works against every Kafka. `search.session` is the library interface; the command is in `ottla.cli.search`. Pure except
for the client's requests, `search.session` and `search.workers`: no filter is evaluated in a second place.

    from ottla.search.session import Budget, SearchRequest, SearchSession

    request = SearchRequest("orders", "from:-2h value.user.id == 42", newest_first=True, budget=Budget(matches=20))
    with SearchSession("127.0.0.1:9092", request, security=parse_security(properties, "the login")) as session:
        for hit in session.matches(on_progress):  # called with a `Report` after each read
            hit.partition, hit.offset, hit.timestamp, hit.key, hit.value, hit.headers  # raw
            hit.decoded_value.value, hit.decoded_value.decoder, hit.decoded_value.failure
        report = session.report()  # also after an error
        report.complete, report.sentence(), report.as_json(), report.resume

- `session.cancel()` may be called from another thread. `matches` then yields the matches that were read and ends; the
  reason in the report is `cancelled`. All other calls belong to one thread.
- Decoders by name: `SearchRequest(decoders=Decoders(key="int64"))`; a registry or schema files:
  `SearchRequest(schemas=SchemaSettings(open_registry(url)))`, both in `ottla.schemas.settings`.
- Masks: `SearchRequest(mask=RecordMask(topic, [parse_rule("value.card", "hash")], secret))`, both in
  `ottla.search.masks`. Filter, matches and report then see masked content only.
- `SearchSession(processes=N)` scans long searches in N worker processes, which `close` ends.
- A page of results: stop at `Budget(matches=...)`, and continue with `SearchRequest.resumed(report.resume)`.
- Errors: `QueryError` with the position in the query, `OperatorError` for a wrong option or token or an unreachable
  broker, `KafkaError` from a broker (for example TOPIC_AUTHORIZATION_FAILED).
- `hit.key` and `hit.value` are the bytes of the record, also if the decoder failed.
"""
