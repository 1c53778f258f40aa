(* Members of a zip archive, stored or deflated (RFC 1951), by its central directory. Trusted. *)
exception Bad

let byte s i = if i < 0 || i >= String.length s then raise Bad else Char.code s.[i]
let word s i = byte s i lor (byte s (i + 1) lsl 8)
let long s i = word s i lor (word s (i + 2) lsl 16)

let crc_table =
  Array.init 256 (fun n ->
      let c = ref n in
      for _ = 1 to 8 do
        c := if !c land 1 = 1 then 0xEDB88320 lxor (!c lsr 1) else !c lsr 1
      done;
      !c)

let crc s =
  let step c ch = crc_table.((c lxor Char.code ch) land 255) lxor (c lsr 8) in
  String.fold_left step 0xFFFFFFFF s lxor 0xFFFFFFFF

(* Canonical codes by their lengths: numbers of codes of each length, and symbols in order. *)
let codes lengths =
  let count = Array.make 16 0 in
  Array.iter (fun l -> count.(l) <- count.(l) + 1) lengths;
  count.(0) <- 0;
  let order = List.init (Array.length lengths) Fun.id |> List.filter (fun i -> lengths.(i) > 0) in
  let sorted = List.stable_sort (fun a b -> compare lengths.(a) lengths.(b)) order in
  (count, Array.of_list sorted)

let length_base = [| 3; 4; 5; 6; 7; 8; 9; 10; 11; 13; 15; 17; 19; 23; 27; 31; 35; 43; 51; 59; 67; 83; 99; 115; 131; 163; 195; 227; 258 |]
let length_more = [| 0; 0; 0; 0; 0; 0; 0; 0; 1; 1; 1; 1; 2; 2; 2; 2; 3; 3; 3; 3; 4; 4; 4; 4; 5; 5; 5; 5; 0 |]
let back_base = [| 1; 2; 3; 4; 5; 7; 9; 13; 17; 25; 33; 49; 65; 97; 129; 193; 257; 385; 513; 769; 1025; 1537; 2049; 3073; 4097; 6145; 8193; 12289; 16385; 24577 |]
let back_more = [| 0; 0; 0; 0; 1; 1; 2; 2; 3; 3; 4; 4; 5; 5; 6; 6; 7; 7; 8; 8; 9; 9; 10; 10; 11; 11; 12; 12; 13; 13 |]
let code_order = [| 16; 17; 18; 0; 8; 7; 9; 6; 10; 5; 11; 4; 12; 3; 13; 2; 14; 1; 15 |]

let inflate s most =
  let out = Buffer.create most and at = ref 0 and held = ref 0 and count = ref 0 in
  let bits n =
    while !count < n do
      held := !held lor (byte s !at lsl !count);
      incr at;
      count := !count + 8
    done;
    let v = !held land ((1 lsl n) - 1) in
    held := !held lsr n;
    count := !count - n;
    v
  in
  let add c = if Buffer.length out >= most then raise Bad else Buffer.add_char out c in
  let symbol (counts, symbols) =
    let code = ref 0 and first = ref 0 and index = ref 0 and found = ref (-1) and l = ref 1 in
    while !found < 0 do
      if !l > 15 then raise Bad;
      code := !code lor bits 1;
      let c = counts.(!l) in
      if !code - !first < c then found := symbols.(!index + !code - !first);
      index := !index + c;
      first := (!first + c) lsl 1;
      code := !code lsl 1;
      incr l
    done;
    !found
  in
  let table a i = if i >= Array.length a then raise Bad else a.(i) in
  let rec block literals backs =
    let v = symbol literals in
    if v < 256 then (add (Char.chr v); block literals backs)
    else if v > 256 then begin
      let length = table length_base (v - 257) + bits (table length_more (v - 257)) in
      let d = symbol backs in
      let back = table back_base d + bits (table back_more d) in
      if back > Buffer.length out then raise Bad;
      for _ = 1 to length do add (Buffer.nth out (Buffer.length out - back)) done;
      block literals backs
    end
  in
  let rec lengths table total got =
    if Array.length got >= total then (if Array.length got > total then raise Bad else got)
    else
      let again n l = lengths table total (Array.append got (Array.make n l)) in
      match symbol table with
      | 16 -> if got = [||] then raise Bad else again (3 + bits 2) got.(Array.length got - 1)
      | 17 -> again (3 + bits 3) 0
      | 18 -> again (11 + bits 7) 0
      | l -> again 1 l
  in
  let last = ref false in
  while not !last do
    last := bits 1 = 1;
    match bits 2 with
    | 0 ->
        held := 0;
        count := 0;
        let n = word s !at in
        if n lxor 0xFFFF <> word s (!at + 2) then raise Bad;
        at := !at + 4;
        for _ = 1 to n do add (Char.chr (byte s !at)); incr at done
    | 1 ->
        let l = Array.init 288 (fun i -> if i < 144 then 8 else if i < 256 then 9 else if i < 280 then 7 else 8) in
        block (codes l) (codes (Array.make 30 5))
    | 2 ->
        let n = bits 5 + 257 in
        let d = bits 5 + 1 in
        let c = bits 4 + 4 in
        let l = Array.make 19 0 in
        for i = 0 to c - 1 do l.(code_order.(i)) <- bits 3 done;
        let all = lengths (codes l) (n + d) [||] in
        block (codes (Array.sub all 0 n)) (codes (Array.sub all n d))
    | _ -> raise Bad
  done;
  Buffer.contents out

(* Names and contents of an archive as solve writes it: members one behind another from the first byte on, the
   directory behind them, its end behind that, and nothing else. All numbers that say where something stands agree, so
   that every reader finds the same members. Not more bytes together than [most]. *)
let members s most =
  let demand holds = if not holds then raise Bad in
  let ending = String.length s - 22 in
  demand (long s ending = 0x06054b50 && word s (ending + 20) = 0);  (* no comment *)
  demand (ending < 20 || long s (ending - 20) <> 0x07064b50);  (* no second end, of zip64 *)
  let total = word s (ending + 10) and directory = long s (ending + 16) in
  demand (long s (ending + 4) = 0 && word s (ending + 8) = total && directory + long s (ending + 12) = ending);
  let left = ref most in
  let rec entries n at start =
    if n = 0 then (demand (at = ending && start = directory); [])
    else begin
      demand (long s at = 0x02014b50 && long s start = 0x04034b50 && long s (at + 42) = start);
      let way = word s (at + 10) and packed = long s (at + 20) and full = long s (at + 24) and named = word s (at + 28) in
      (* no flags; no further fields and comment in the directory *)
      demand (word s (at + 8) = 0 && long s (at + 30) = 0 && word s (start + 6) = 0 && word s (start + 8) = way);
      demand (long s (at + 16) = long s (start + 14) && named = word s (start + 26));
      let name = String.sub s (at + 46) named and more = word s (start + 28) in
      demand (String.sub s (start + 30) named = name);
      (* sizes once more: here, or in a field of zip64, as NumPy writes them *)
      let again = start + 30 + named in
      if more = 0 then demand (long s (start + 18) = packed && long s (start + 22) = full)
      else demand (more = 20 && long s (start + 18) = 0xFFFFFFFF && long s (start + 22) = 0xFFFFFFFF
                   && long s again = 0x00100001 && long s (again + 4) = full && long s (again + 8) = 0
                   && long s (again + 12) = packed && long s (again + 16) = 0);
      let raw = String.sub s (again + more) packed in
      left := !left - full;
      demand (!left >= 0);
      let contents = match way with 0 -> raw | 8 -> inflate raw full | _ -> raise Bad in
      demand (String.length contents = full && crc contents = long s (at + 16));
      (name, contents) :: entries (n - 1) (at + 46 + named) (again + more + packed)
    end
  in
  entries total directory 0
