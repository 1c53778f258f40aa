// Search in the page itself: no worker, nothing fetched, so that it works from a folder too (offline.py).
(function () {
  "use strict";

  function build(data) {
    return lunr(function () {
      this.ref("location");
      this.field("title", { boost: 10 });
      this.field("text");
      data.docs.forEach(function (doc) { this.add(doc); }, this);
    });
  }

  // Pages that hold the words, or words that begin so; no word is read as a command.
  function find(index, words) {
    return index.query(function (query) {
      lunr.tokenizer(words).forEach(function (token) {
        query.term(token.toString(), { boost: 10 });
        query.term(token.toString(), { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
      });
    });
  }

  function element(name, text) {
    var made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  // The text about the first place where one of the words stands.
  function excerpt(text, words) {
    var lower = text.toLowerCase();
    var places = words.toLowerCase().split(/\s+/).map(function (word) { return lower.indexOf(word); });
    var first = Math.min.apply(null, places.filter(function (place) { return place >= 0; }).concat(text.length));
    var start = first === text.length ? 0 : Math.max(0, first - 80);
    return (start > 0 ? "... " : "") + text.substring(start, start + 240);
  }

  function show(results, words, place) {
    place.textContent = "";
    if (results.length === 0) {
      place.appendChild(element("p", "No results found"));
    }
    results.forEach(function (doc) {
      var article = document.createElement("article");
      var link = element("a", doc.title);
      link.href = base_url + "/" + doc.location;
      article.appendChild(document.createElement("h3")).appendChild(link);
      article.appendChild(element("p", excerpt(doc.text, words)));
      place.appendChild(article);
    });
  }

  function load(name, then) {
    var script = document.createElement("script");
    script.src = base_url + "/search/" + name;
    script.onload = then;
    document.head.appendChild(script);
  }

  function start() {
    var input = document.getElementById("mkdocs-search-query");
    var place = document.getElementById("mkdocs-search-results");
    if (!input || !place) { // only the search page shows results; the others send their words to it
      return;
    }
    load("lunr.js", function () {
      load("search_index.js", function () {
        var index = build(searchIndex);
        var documents = new Map(searchIndex.docs.map(function (doc) { return [doc.location, doc]; }));
        function search() {
          var words = input.value.trim();
          var found = words.length < 2 ? [] : find(index, words);
          show(found.map(function (result) { return documents.get(result.ref); }), words, place);
        }
        input.addEventListener("input", search);
        input.value = new URLSearchParams(window.location.search).get("q") || "";
        search();
      });
    });
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
