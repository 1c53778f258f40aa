// Search in the header of every page: no worker, nothing fetched, so that it works from a folder too (offline.py).
(function () {
  "use strict";

  var MOST_RESULTS = 12;

  function build(data) {
    return lunr(function () {
      this.ref("location");
      this.field("title", { boost: 10 });
      this.field("text");
      data.docs.forEach(function (doc) { this.add(doc, { boost: doc.location.indexOf("#") < 0 ? 2 : 1 }); }, this);
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
    var node = document.createElement(name);
    node.textContent = text;
    return node;
  }

  // The text about the first place where one of the words stands.
  function excerpt(text, words) {
    var lower = text.toLowerCase();
    var places = words.toLowerCase().split(/\s+/).map(function (word) { return lower.indexOf(word); });
    var first = Math.min.apply(null, places.filter(function (place) { return place >= 0; }).concat(text.length));
    var start = first === text.length ? 0 : Math.max(0, first - 80);
    return (start > 0 ? "... " : "") + text.substring(start, start + 180);
  }

  // The title of a section with that of its page before it.
  function full_title(doc, documents) {
    var page = documents.get(doc.location.split("#")[0]);
    return page && page !== doc ? page.title + ": " + doc.title : doc.title;
  }

  function show(results, words, place, documents) {
    place.textContent = "";
    if (results.length === 0) {
      place.appendChild(element("p", "No results found"));
    }
    results.forEach(function (doc) {
      var article = document.createElement("article");
      var link = element("a", full_title(doc, documents));
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

  function start_search() {
    var input = document.getElementById("search-query");
    var whole_page = document.getElementById("search-page-results"); // on the search page only
    var place = whole_page || document.getElementById("search-results");
    var index, documents, is_loading = false;

    function search() {
      var words = input.value.trim();
      if (!index) { // the index is large: it is loaded when the reader first needs it
        if (!is_loading) {
          is_loading = true;
          load("lunr.js", function () {
            load("search_index.js", function () {
              index = build(searchIndex);
              documents = new Map(searchIndex.docs.map(function (doc) { return [doc.location, doc]; }));
              search();
            });
          });
        }
        return;
      }
      var matches = words.length < 2 ? [] : find(index, words);
      if (!whole_page) {
        matches = matches.slice(0, MOST_RESULTS);
        place.hidden = words.length < 2;
      }
      show(matches.map(function (match) { return documents.get(match.ref); }), words, place, documents);
    }

    input.addEventListener("input", search);
    input.addEventListener("focus", function () { if (input.value) { search(); } });
    document.addEventListener("keydown", function (event) {
      var is_typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (event.key === "/" && !is_typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        input.focus();
      }
      if (event.key === "Escape" && !whole_page && !place.hidden) {
        place.hidden = true;
        input.focus();
      }
    });
    document.addEventListener("click", function (event) {
      if (!whole_page && !event.target.closest("#search-form")) { place.hidden = true; }
    });
    if (whole_page) {
      input.value = new URLSearchParams(window.location.search).get("q") || "";
      search();
    }
  }

  // The button names the scheme that it changes to.
  function start_scheme() {
    var button = document.getElementById("scheme"), root = document.documentElement;
    function is_dark() {
      return root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    }
    function name_button() { button.textContent = is_dark() ? "Light" : "Dark"; }
    button.addEventListener("click", function () {
      root.dataset.scheme = is_dark() ? "light" : "dark";
      try { localStorage.setItem("privopt-scheme", root.dataset.scheme); } catch (error) { /* for this page alone */ }
      name_button();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name_button);
    name_button();
    button.hidden = false;
  }

  start_search();
  start_scheme();
})();
