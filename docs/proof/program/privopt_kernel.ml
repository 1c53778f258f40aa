(* privopt-kernel DIR: reads a folder's files and hands them to the proved program. Trusted. *)
let bytes s = List.init (String.length s) (fun i -> Z.of_int (Char.code s.[i]))

(* Of regular files alone: a pipe may never end. *)
let contents path =
  if (Unix.lstat path).Unix.st_kind <> Unix.S_REG then raise Unzip.Bad;
  let file = open_in_bin path in
  Fun.protect ~finally:(fun () -> close_in file) (fun () -> really_input_string file (in_channel_length file))

(* An archive holds eight times its own bytes at most, and as the checker has it 1 MiB and 8 bytes a weight beside. *)
let archive folder name weights =
  let path = Filename.concat folder name in
  if Sys.file_exists path then
    let s = contents path in
    List.map (fun (part, s) -> (name ^ "/" ^ part, s)) (Unzip.members s ((8 * String.length s) + 0x100000 + weights))
  else []

let files folder =
  let beside = Array.to_list (Sys.readdir (Filename.concat folder "problem")) in
  let plain = "result.json" :: List.map (fun name -> "problem/" ^ name) (List.sort compare beside) in
  let read name = (name, contents (Filename.concat folder name)) in
  let mechanism = archive folder "mechanism.npz" 0 in
  let weights = List.fold_left (fun n (_, s) -> n + String.length s) 0 mechanism in
  List.map read plain @ mechanism @ archive folder "proof.npz" weights

let decimal (n, d) = Printf.sprintf "%.17g" (Q.to_float (Q.make n d))

let say = function
  | Proved.Unknown -> print_endline "unknown: a form that the proof does not speak of"; 2
  | Proved.Fails claim ->
      let what = match claim with
        | Proved.Privacy_or_form -> "privacy, or distances, costs or shares that are none"
        | Proved.Guarantee -> "guarantee.epsilon, scope or neighbours_within"
        | Proved.Value -> "objective.value or details.value_unit"
        | Proved.Lower_bound -> "objective.lower_bound, by this proof.npz"
        | Proved.Prior -> "the prior's sum" in
      print_endline ("not proved: " ^ what); 1
  | Proved.Proved (p, _, c, _) ->
      let bound = match c.Proved.bound_of with
        | Some b -> "no mechanism over its outputs loses less than " ^ decimal b
        | None -> "no bound is claimed" in
      Printf.printf "proved: %d records, %d outputs, epsilon %s, loss %s; %s\n" (List.length p.Proved.records)
        (List.length p.Proved.outputs) (decimal p.Proved.epsilon) (decimal c.Proved.value_of) bound;
      0

(* Lists of a folder's bytes are longer than the usual stack is deep. *)
let with_deep_stack () =
  if Sys.getenv_opt "PRIVOPT_KERNEL_STACK" = None then begin
    Unix.putenv "PRIVOPT_KERNEL_STACK" "deep";
    let line = "ulimit -s unlimited 2>/dev/null || ulimit -s $(ulimit -H -s); exec \"$0\" \"$@\"" in
    Unix.execv "/bin/sh" (Array.append [| "/bin/sh"; "-c"; line; Sys.executable_name |] (Array.sub Sys.argv 1 (Array.length Sys.argv - 1)))
  end

let () =
  match Sys.argv with
  | [| _; folder |] ->
      with_deep_stack ();
      let code =
        try say (Proved.examine (List.map (fun (name, s) -> (bytes name, bytes s)) (files folder)))
        with Unzip.Bad | Sys_error _ | Invalid_argument _ | Z.Overflow | Out_of_memory | Stack_overflow | End_of_file
             | Unix.Unix_error _ ->
          print_endline "unknown: a folder that cannot be read"; 2
      in
      exit code
  | _ -> prerr_endline "usage: privopt-kernel DIR"; exit 2
